// All views are there, and the address says which is shown.
page.start();
