"""What every scenario stands on: expectations, tokens, the hub, the database, a raw WebSocket client."""
