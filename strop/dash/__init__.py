"""What people see: progress in the terminal, tables, and the HTML report."""
