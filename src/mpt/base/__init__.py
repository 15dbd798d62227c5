"""What every room may use: errors, settings, extension points, files, generators, figures over seeds."""
