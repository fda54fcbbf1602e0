"""The web page: what people see of a project, and steer it by."""
