"""What people see: the live tree, progress lines, results and receipts."""
