// What somebody has chosen here before, known before anything is painted.

const chosen = document.documentElement.dataset;
if (localStorage.getItem("theme")) chosen.theme = localStorage.getItem("theme");
if (localStorage.getItem("knows")) chosen.knows = "";
