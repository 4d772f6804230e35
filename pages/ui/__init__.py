"""What the pages share: state, jobs, caches, the page frame, charts and the head grid."""
