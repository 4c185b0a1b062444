"""What people look at: schedules as text and as drawings."""
