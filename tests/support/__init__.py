"""What several tests need: engines without weights, servers on loopback, random models, laws of choice."""
