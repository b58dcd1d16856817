"""Add-on for machines that run unattended: watching processes, an endpoint for Prometheus, the bill of a memory cgroup, crashes."""
