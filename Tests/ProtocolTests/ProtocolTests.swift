// Filled by the room's first test.
