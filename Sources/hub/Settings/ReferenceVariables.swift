/// Variables that the reference container uses and that have no effect on the hub. The hub accepts them, so that
/// operators can replace the image without other changes, and lists them, so that operators expect no effect.
enum ReferenceVariables {
    private static let names: Set<String> = [
        "APP_NAME", "SECRET_KEY_BASE", "RUN_JANITOR", "DISABLE_HEALTHCHECK_LOGGING", "RLIMIT_NOFILE",
        "DNS_NODES", "DB_AFTER_CONNECT_QUERY", "DB_ENC_WRITE_GCM", "DB_IP_VERSION", "DB_POOL_SIZE", "DB_QUEUE_TARGET",
        "DB_QUEUE_INTERVAL", "DB_MASTER_REGION", "REALTIME_IP_VERSION", "TENANT_MAX_BYTES_PER_SECOND", "NUM_ACCEPTORS",
        "MAX_HEADER_LENGTH", "WEBSOCKET_MAX_HEAP_SIZE", "TENANT_CACHE_EXPIRATION_IN_MS", "PRESENCE_POOL_SIZE",
        "PRESENCE_BROADCAST_PERIOD_IN_MS", "PRESENCE_PERMDOWN_PERIOD_IN_MS", "REGION_MAPPING", "CLUSTER_STRATEGIES",
        "REBALANCE_CHECK_INTERVAL_IN_MS", "RPC_TIMEOUT", "BROADCAST_POOL_SIZE", "LOGS_ENGINE", "PROM_POLL_RATE",
        "METRICS_RPC_TIMEOUT_IN_MS", "METRICS_CLEANER_SCHEDULE_TIMER_IN_MS", "REQUEST_ID_BAGGAGE_KEY",
        "DASHBOARD_AUTH", "DASHBOARD_USER", "DASHBOARD_PASSWORD", "CF_TEAM_DOMAIN", "FLY_ALLOC_ID", "FLY_APP_NAME",
        "ENABLE_TAILSCALE",
    ]

    private static let beginnings = [
        "ERL_", "RELEASE_", "LOGFLARE_", "METRICS_PUSHER_", "OTEL_", "GEN_RPC_", "MAX_GEN_RPC_", "JANITOR_",
    ]

    private static let ends = ["_SCOPE_SHARDS", "_PARTITION_SLOTS"]

    /// Returns the variables without effect that are set, in alphabetical order.
    static func withoutEffect(in environment: [String: String]) -> [String] {
        environment.filter { !$0.value.isEmpty && isWithoutEffect($0.key) }.keys.sorted()
    }

    private static func isWithoutEffect(_ name: String) -> Bool {
        names.contains(name) || beginnings.contains { name.hasPrefix($0) } || ends.contains { name.hasSuffix($0) }
    }
}
