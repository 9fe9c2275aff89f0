"""Where images come from when they are nobody's benchmark: folders, archives, videos, cameras, queues."""
