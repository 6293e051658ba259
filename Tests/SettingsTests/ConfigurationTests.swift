import Diagnostics
import Net
import TestSupport
import Testing

@testable import Settings

/// Returns files and an environment that exist only in the test.
func surroundings(
    environment: [String: String] = [:], isRoot: Bool = false, files: [String: String] = [:]
) -> ConfigurationSurroundings {
    ConfigurationSurroundings(environment: environment, isRoot: isRoot) { path in
        files[path].map { .bytes(Array($0.utf8)) } ?? .missing
    }
}

/// Returns the problems that loading reports, one per line.
func complaints(
    overrides: [SettingOverride] = [], file: String? = nil, environment: [String: String] = [:],
    files: [String: String] = [:]
) -> [String] {
    do throws(ConfigurationFailure) {
        _ = try Configuration.load(
            overrides: overrides, file: file, surroundings: surroundings(environment: environment, files: files))
        return []
    } catch {
        return error.problems.map(\.description)
    }
}

@Suite(.within(minutes: 5)) struct ConfigurationTests {
    @Test func `has the documented defaults`() throws {
        let configuration = try Configuration.load(surroundings: surroundings(environment: ["HOME": "/home/ana"]))
        #expect(configuration.databaseURL == nil)
        #expect(configuration.listen == ListenAddress(host: "127.0.0.1", port: 4000))
        #expect(configuration.publication == "supabase_realtime")
        #expect(configuration.slot == "tidewire")
        #expect(configuration.createsSlot && configuration.createsPublication)
        #expect(configuration.dataDirectory == "/home/ana/.local/state/tidewire")
        #expect(configuration.retentionAge == .seconds(72 * 3600))
        #expect(configuration.retentionBytes == 10 << 30)
        #expect(configuration.segmentBytes == 64 << 20)
        #expect(configuration.jwtSecret == nil && configuration.metricsSecret == nil)
        #expect(configuration.keySet == nil && configuration.apiKeys == nil)
        #expect(configuration.tls == nil && configuration.loops == nil && configuration.backend == .automatic)
        #expect(!configuration.compresses)
        #expect(configuration.maximumConnections == 100_000)
        #expect(configuration.channelsPerClient == 100)
        #expect(
            configuration.projectLimits
                == ProjectLimits(
                    maximumConcurrentUsers: 10_000, maximumChannelsPerClient: 100, maximumJoinsPerSecond: 2500,
                    maximumEventsPerSecond: 10_000, maximumPresenceEventsPerSecond: 10_000, clientPresenceEvents: 5,
                    clientPresenceWindow: .seconds(30), maximumPayloadBytes: 3_000_500, isPrivateOnly: false,
                    presenceEnabled: false, isSuspended: false))
        #expect(configuration.projectName == "realtime-dev" && configuration.projectKey == nil)
        #expect(configuration.operatorSecret == nil && configuration.nextOperatorSecret == nil)
        #expect(!configuration.keepsPresenceTimeline && !configuration.replaysPublicChannels)
        #expect(configuration.replayLimit == 25 && configuration.messagesHours == 72)
        #expect(configuration.maximumRequestBodyBytes == 8_000_000)
        #expect(configuration.idleChannelTimeout == .seconds(600))
        #expect(configuration.frameBytes == 5_000_000)
        #expect(configuration.recordBytes == 1 << 20)
        #expect(configuration.outboxBytes == Limits.outboxBytes && configuration.outboxAge == Limits.outboxAge)
        #expect(configuration.idleTimeout == .seconds(60))
        #expect(configuration.connectErrorBackoff == .seconds(2))
        #expect(configuration.channelErrorBackoff == .seconds(5))
        #expect(configuration.logLevel == .info)
        #expect(configuration.logFormat == .text)
        #expect(configuration.file == nil)
        #expect(configuration.effective.allSatisfy { $0.isDefault && $0.source == .builtIn })
    }

    @Test func `keeps events where the user's state belongs`() throws {
        let home = ["HOME": "/home/ana", "XDG_STATE_HOME": "/state"]
        #expect(
            try Configuration.load(surroundings: surroundings(environment: home)).dataDirectory == "/state/tidewire")
        #expect(
            try Configuration.load(surroundings: surroundings(environment: home, isRoot: true)).dataDirectory
                == "/var/lib/tidewire")
    }

    @Test func `prefers flags to environment to file to default`() throws {
        let files = ["./tidewire.conf": "slot = in_file\npublication = in_file\nlisten = 'h:1'\n"]
        let environment = ["TIDEWIRE_SLOT": "in_environment", "TIDEWIRE_PUBLICATION": "in_environment"]
        let configuration = try Configuration.load(
            overrides: [.flag(Setting(\.slot), "in_flag")],
            surroundings: surroundings(environment: environment, files: files))
        #expect(configuration.slot == "in_flag")
        #expect(configuration.source(of: Setting(\.slot)) == .flag("--slot"))
        #expect(configuration.publication == "in_environment")
        #expect(configuration.source(of: Setting(\.publication)) == .environment(["TIDEWIRE_PUBLICATION"]))
        #expect(configuration.listen.port == 1)
        #expect(configuration.source(of: Setting(\.listen)) == .file(path: "./tidewire.conf", line: 3))
        #expect(configuration.source(of: Setting(\.logLevel)) == .builtIn)
    }

    @Test func `reads the file that is asked for and no other`() throws {
        let files = [
            "/a.conf": "slot = a", "/b.conf": "slot = b", "./tidewire.conf": "slot = c",
            "/etc/tidewire/tidewire.conf": "slot = d\npublication = d",
        ]
        func slot(_ file: String?, _ environment: [String: String] = [:], without: String? = nil) throws -> String {
            let files = files.filter { $0.key != without }
            return try Configuration.load(
                file: file, surroundings: surroundings(environment: environment, files: files)
            ).slot
        }
        #expect(try slot("/a.conf", ["TIDEWIRE_CONFIG": "/b.conf"]) == "a")
        #expect(try slot(nil, ["TIDEWIRE_CONFIG": "/b.conf"]) == "b")
        #expect(try slot(nil) == "c")
        #expect(try slot(nil, without: "./tidewire.conf") == "d")
        #expect(complaints(file: "/no.conf", files: files) == ["--config: there is no file /no.conf"])
    }

    @Test func `takes zero retention as no limit`() throws {
        let configuration = try Configuration.load(
            overrides: [.flag(Setting(\.retentionAge), "0"), .flag(Setting(\.retentionBytes), "0")],
            surroundings: surroundings())
        #expect(configuration.retentionAge == nil)
        #expect(configuration.retentionBytes == nil)
    }

    @Test func `marks what differs from the default, not what merely says it again`() throws {
        let configuration = try Configuration.load(
            overrides: [
                .flag(Setting(\.segmentBytes), "65536kB"), .flag(Setting(\.streamsTransactionsInProgress), "off"),
            ], surroundings: surroundings())
        let changed = configuration.effective.filter { !$0.isDefault }.map(\.setting.name)
        #expect(changed == ["streaming"])
        #expect(configuration.effective.first { $0.setting == Setting(\.segmentBytes) }?.shown == "64MB")
    }

    @Test func `can be read back from its own sample`() throws {
        let sample = ConfigurationSample.text(surroundings: surroundings(isRoot: true))
        let live = sample.split(separator: "\n").map { line in
            line.hasPrefix("#") && !line.hasPrefix("# ") && line.count > 1 ? line.dropFirst() : line
        }
        .filter { !$0.hasSuffix("= ''") }.joined(separator: "\n")
        let configuration = try Configuration.load(
            surroundings: surroundings(isRoot: true, files: ["./tidewire.conf": live]))
        #expect(configuration.effective.allSatisfy { $0.isDefault })
        #expect(configuration.source(of: Setting(\.slot)) != .builtIn)
    }
}

@Suite(.within(minutes: 5)) struct ConfigurationComplaintTests {
    @Test func `names the nearest setting when one is misspelt in the file`() {
        #expect(
            complaints(files: ["./tidewire.conf": "# hello\n\ndata_dri = /x\n"])
                == ["./tidewire.conf:3: there is no setting data_dri; did you mean data_dir?"])
    }

    @Test func `names the nearest variable when one is misspelt`() {
        #expect(
            complaints(environment: ["TIDEWIRE_DATABSE_URL": "x"])
                == ["environment TIDEWIRE_DATABSE_URL: there is no such setting; did you mean TIDEWIRE_DATABASE_URL?"])
    }

    @Test func `points to the list when nothing is near`() {
        #expect(
            complaints(files: ["./tidewire.conf": "shared_buffers = 1GB"])
                == ["./tidewire.conf:1: there is no setting shared_buffers; `tidewire config` lists them all"])
    }

    @Test func `says what is allowed when a value is malformed`() {
        let found = complaints(
            overrides: [.flag(Setting(\.logLevel), "loud")], environment: ["TIDEWIRE_LISTEN": "4000"],
            files: ["./tidewire.conf": "segment_size = 64mb"])
        #expect(
            found == [
                "./tidewire.conf:1: segment_size: expected a size from 1MB to 1GB, such as 64MB "
                    + "(units: B, kB, MB, GB, TB; 1 kB is 1024 bytes), not \"64mb\"",
                "environment TIDEWIRE_LISTEN: listen: expected host:port, such as 127.0.0.1:4000 or [::1]:4000, "
                    + "not \"4000\"",
                "--log-level: log_level: expected one of error, warning, info, debug, not \"loud\"",
            ])
    }

    @Test func `takes an empty variable as unset`() {
        #expect(complaints(environment: ["TIDEWIRE_LISTEN": "", "PORT": "", "DB_HOST": ""]) == [])
    }

    @Test func `is not disturbed by the variables of a Kubernetes service`() {
        #expect(
            complaints(environment: [
                "TIDEWIRE_SERVICE_HOST": "10.0.0.1", "TIDEWIRE_SERVICE_PORT": "4000", "TIDEWIRE_PORT": "tcp://10.0.0.1",
                "TIDEWIRE_PORT_4000_TCP_ADDR": "10.0.0.1",
            ]) == [])
    }

    @Test func `is not disturbed by where somebody has another PostgreSQL to start`() {
        #expect(complaints(environment: ["TIDEWIRE_PG_BINDIR": "/usr/lib/postgresql/16/bin"]) == [])
    }
}

@Suite(.within(minutes: 5)) struct ReferenceEnvironmentTests {
    private func load(_ environment: [String: String], file: String = "") throws -> Configuration {
        try Configuration.load(
            surroundings: surroundings(environment: environment, files: ["./tidewire.conf": file]))
    }

    @Test func `combines the parts of a database's address`() throws {
        let parts = [
            "DB_HOST": "db", "DB_PORT": "6543", "DB_USER": "u", "DB_PASSWORD": "it's \\ a", "DB_NAME": "app",
        ]
        let configuration = try load(parts)
        #expect(
            configuration.databaseURL?.revealed
                == #"host='db' port='6543' user='u' dbname='app' password='it\'s \\ a'"#)
        #expect(configuration.databaseURL?.redacted == "host=db port=6543 user=u dbname=app password=********")
        #expect(
            configuration.source(of: Setting(\.databaseURL))
                == .environment(["DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME"]))
    }

    @Test func `prefers a URL to the parts`() throws {
        let configuration = try load(["DB_HOST": "db", "TIDEWIRE_DATABASE_URL": "postgres://other/app"])
        #expect(configuration.databaseURL?.revealed == "postgres://other/app")
    }

    @Test func `takes only the port from PORT`() throws {
        #expect(try load(["PORT": "5000"]).listen.description == "127.0.0.1:5000")
        #expect(try load(["PORT": "5000"], file: "listen = '0.0.0.0:1'").listen.description == "0.0.0.0:5000")
        #expect(try load(["PORT": "5000", "TIDEWIRE_LISTEN": "[::1]:1"]).listen.description == "[::1]:1")
        #expect(
            complaints(environment: ["PORT": "http"]) == [
                "environment PORT: expected a port from 0 to 65535, not \"http\""
            ])
    }

    @Test func `makes the default slot's name its own with a suffix`() throws {
        #expect(try load(["SLOT_NAME_SUFFIX": "blue"]).slot == "tidewire_blue")
        #expect(try load(["SLOT_NAME_SUFFIX": "blue"], file: "slot = mine").slot == "mine")
        #expect(complaints(environment: ["SLOT_NAME_SUFFIX": "Blue"]).count == 1)
    }

    @Test func `knows the reference's names for tokens and limits`() throws {
        let configuration = try load([
            "JWT_JWKS": #"{"keys":[]}"#, "JWT_CLAIM_VALIDATORS": #"{"iss":"x"}"#, "METRICS_JWT_SECRET": "m",
            "MAX_CONNECTIONS": "200", "TENANT_MAX_CHANNELS_PER_CLIENT": "7",
            "CONNECT_ERROR_BACKOFF_MS": "1500", "CHANNEL_ERROR_BACKOFF_MS": "0",
        ])
        #expect(configuration.keySet == .inline(Secret(#"{"keys":[]}"#)))
        #expect(configuration.source(of: Setting(\.claimExpectations)) == .environment(["JWT_CLAIM_VALIDATORS"]))
        #expect(configuration.metricsSecret?.revealed == "m")
        #expect(configuration.maximumConnections == 200)
        #expect(configuration.channelsPerClient == 7)
        #expect(configuration.connectErrorBackoff == .milliseconds(1500))
        #expect(configuration.channelErrorBackoff == .zero)
        #expect(
            try load(["JWT_JWKS": "/a", "API_JWT_JWKS": "/b", "TIDEWIRE_JWKS": "/c"]).keySet == .file("/c"))
        #expect(try load(["JWT_JWKS": "/a", "API_JWT_JWKS": "/b"], file: "jwks = /d").keySet == .file("/b"))
        #expect(
            complaints(environment: ["CONNECT_ERROR_BACKOFF_MS": "2s", "CHANNEL_ERROR_BACKOFF_MS": "10000"]) == [
                "environment CONNECT_ERROR_BACKOFF_MS: expected a number of milliseconds, not \"2s\"",
                "environment CHANNEL_ERROR_BACKOFF_MS: channel_error_backoff: expected a duration from 0 to 9s, "
                    + "such as 72h (units: ms, s, min, h, d), not \"10000ms\"",
            ])
    }

    @Test func `knows the reference's names for projects and their limits`() throws {
        let configuration = try load([
            "TENANT_MAX_CONCURRENT_USERS": "300", "TENANT_MAX_EVENTS_PER_SECOND": "0",
            "TENANT_MAX_JOINS_PER_SECOND": "5", "CLIENT_PRESENCE_MAX_CALLS": "9", "CLIENT_PRESENCE_WINDOW_MS": "1500",
            "NO_CHANNEL_TIMEOUT_IN_MS": "0", "SELF_HOST_TENANT_NAME": "app", "REGION": "eu-west-3",
            "DB_ENC_KEY": "weaker", "DB_ENC_KEY_GCM": "stronger", "API_JWT_SECRET_NEXT": "n",
            "API_TOKEN_BLOCKLIST": "a,b", "METRICS_TOKEN_BLOCKLIST": "c",
        ])
        #expect(configuration.projectLimits.maximumConcurrentUsers == 300)
        #expect(configuration.projectLimits.maximumEventsPerSecond == nil)
        #expect(configuration.projectLimits.maximumJoinsPerSecond == 5)
        #expect(configuration.projectLimits.clientPresenceEvents == 9)
        #expect(configuration.projectLimits.clientPresenceWindow == .milliseconds(1500))
        #expect(configuration.idleChannelTimeout == nil)
        #expect(configuration.projectName == "app" && configuration.region == "eu-west-3")
        #expect(configuration.projectKey?.revealed == "stronger")
        #expect(configuration.nextOperatorSecret?.revealed == "n")
        #expect(configuration.operatorBlocklist?.revealed == "a,b")
        #expect(configuration.metricsBlocklist?.revealed == "c")
        #expect(configuration.maximumConnections == 100_000)
    }

    @Test func `encrypts the way to the database where the reference would`() throws {
        let plain = try load(["DB_HOST": "db", "DB_SSL": "false", "DB_SSL_CA_CERT": "/ca.pem"])
        #expect(plain.databaseURL?.redacted.contains("sslmode") == false)
        #expect(try load(["DB_HOST": "db", "DB_SSL": "1"]).databaseURL?.redacted.hasSuffix(" sslmode=require") == true)
        #expect(
            try load(["DB_HOST": "db", "DB_SSL": "true", "DB_SSL_CA_CERT": "/ca.pem"]).databaseURL?.redacted
                .hasSuffix(" sslmode=verify-full sslrootcert=/ca.pem") == true)
        #expect(complaints(environment: ["DB_HOST": "db", "DB_SSL": "maybe"]).count == 1)
    }

    @Test func `accepts what the self-hosted stack sets and says what has no effect`() throws {
        let configuration = try load([
            "PORT": "4000", "DB_HOST": "db", "DB_PORT": "5432", "DB_USER": "supabase_admin", "DB_PASSWORD": "p",
            "DB_NAME": "postgres", "DB_AFTER_CONNECT_QUERY": "SET search_path TO _realtime",
            "DB_ENC_KEY": "supabaserealtime", "API_JWT_SECRET": "s", "SECRET_KEY_BASE": "k",
            "ERL_AFLAGS": "-proto_dist inet_tcp", "DNS_NODES": "''", "RLIMIT_NOFILE": "10000", "APP_NAME": "realtime",
            "SEED_SELF_HOST": "true", "RUN_JANITOR": "true", "DISABLE_HEALTHCHECK_LOGGING": "true",
            "METRICS_JWT_SECRET": "m", "OTEL_TRACES_EXPORTER": "", "HOME": "/",
        ])
        #expect(
            configuration.variablesWithoutEffect == [
                "APP_NAME", "DB_AFTER_CONNECT_QUERY", "DISABLE_HEALTHCHECK_LOGGING", "DNS_NODES", "ERL_AFLAGS",
                "RLIMIT_NOFILE", "RUN_JANITOR", "SECRET_KEY_BASE",
            ])
        #expect(configuration.preparesDatabase)
        #expect(configuration.projectName == "realtime-dev")
        #expect(configuration.metricsSecret?.revealed == "m")
    }

    @Test func `knows the reference's names for the secret and the log level`() throws {
        let configuration = try load(["API_JWT_SECRET": "s", "LOG_LEVEL": "notice"])
        #expect(configuration.jwtSecret?.revealed == "s" && configuration.operatorSecret?.revealed == "s")
        #expect(configuration.logLevel == .info)
        #expect(try load(["LOG_LEVEL": "error", "TIDEWIRE_LOG_LEVEL": "debug"]).logLevel == .debug)
        #expect(try load(["JWT_SECRET": "t"]).jwtSecret?.revealed == "t")
        #expect(try load(["JWT_SECRET": "t", "API_JWT_SECRET": "s"]).jwtSecret?.revealed == "s")
    }
}
