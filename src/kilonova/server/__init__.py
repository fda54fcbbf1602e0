"""What runs by itself: a loop that fires triggers and starts runs, and the processes that carry these out."""
