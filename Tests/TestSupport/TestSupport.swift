// Stage for tests.
