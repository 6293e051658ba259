import Bytes

/// State and configuration of one NATS server, as its monitoring port reports them (`/varz`).
public struct ServerReport: Sendable, Equatable {
    /// Identity of the running process, which no other has.
    public var id: String
    public var name: String
    public var version: ServerVersion
    public var maximumPayload: Int
    /// Name of the cluster that the server's configuration gives; nil for a server alone.
    public var cluster: String?
    public var isEncrypted = false
    public var asksForLogin = false
    /// Time of the server's clock in milliseconds since 1970; nil if the report has none.
    public var unixMilliseconds: Int64?
    /// State of JetStream; nil if it is off.
    public var jetStream: JetStreamReport?

    /// Parses a report; nil if the bytes are none of a NATS server.
    public init?(_ bytes: [UInt8]) {
        guard let value = try? JSONValue.parse(bytes, maximumDepth: 16, maximumMembers: Self.maximumMembers),
            let report = value.object, let id = report["server_id"]?.string,
            let version = report["version"]?.string.flatMap({ ServerVersion($0) }),
            let payload = report["max_payload"]?.integer
        else { return nil }
        self.id = id
        // A server without a name in its configuration has its id as its name.
        name = report["server_name"]?.string ?? id
        self.version = version
        maximumPayload = payload
        cluster = report["cluster"]?.object?["name"]?.string
        isEncrypted = report["tls_required"]?.bool ?? false
        asksForLogin = report["auth_required"]?.bool ?? false
        unixMilliseconds = report["now"]?.string.flatMap { ServerMoment.unixMilliseconds($0) }
        jetStream = report["jetstream"]?.object.flatMap { JetStreamReport($0) }
    }

    private static let maximumMembers = 4_096
}

/// State and configuration of JetStream on one server.
public struct JetStreamReport: Sendable, Equatable {
    public var syncsAlways: Bool
    public var syncInterval: Duration
    /// Bytes that streams may use on the server's disk.
    public var maximumStorage: Int
    /// Directory of the streams, as the server's configuration names it (`store_dir`).
    public var storeDirectory: String
    /// Number of servers that JetStream's cluster has; 1 for a server alone.
    public var clusterSize: Int
    /// Name of the server that leads JetStream's cluster; nil while there is none. A server alone leads itself.
    public var leader: String?
    /// Servers that the leader has not heard of for a while. Only the leader's report has them.
    public var offline: [String]

    /// Creates the report from the object `jetstream`; nil if JetStream is off, for which the object is empty.
    init?(_ object: JSONObject) {
        guard let config = object["config"]?.object, let storage = config["max_storage"]?.integer else { return nil }
        syncsAlways = config["sync_always"]?.bool ?? false
        syncInterval = .nanoseconds(config["sync_interval"]?.integer ?? 0)
        maximumStorage = storage
        // The server adds a folder of its own to the directory of its configuration.
        let store = config["store_dir"]?.string ?? ""
        storeDirectory = store.hasSuffix("/jetstream") ? String(store.dropLast("/jetstream".count)) : store
        let meta = object["meta"]?.object
        clusterSize = meta?["cluster_size"]?.integer ?? 1
        leader = meta.map { $0["leader"]?.string ?? "" }.flatMap { $0.isEmpty ? nil : $0 }
        offline = (meta?["replicas"]?.array ?? []).compactMap(\.object).filter { $0["offline"]?.bool == true }
            .compactMap { $0["name"]?.string }
    }

    /// True if JetStream's cluster has a leader, or the server is alone.
    public var hasLeader: Bool { clusterSize <= 1 || leader != nil }
}

/// Version of a NATS server. Suffixes of previews are ignored.
public struct ServerVersion: Sendable, Hashable, Comparable, CustomStringConvertible {
    public var major: Int
    public var minor: Int
    public var patch: Int

    public init(_ major: Int, _ minor: Int, _ patch: Int) {
        self.major = major
        self.minor = minor
        self.patch = patch
    }

    init?(_ text: String) {
        let parts = text.prefix { $0 != "-" && $0 != "+" }.split(separator: ".", omittingEmptySubsequences: false)
            .map { Int($0) }
        guard parts.count == 3, let major = parts[0], let minor = parts[1], let patch = parts[2] else { return nil }
        self.init(major, minor, patch)
    }

    public static func < (left: ServerVersion, right: ServerVersion) -> Bool {
        (left.major, left.minor, left.patch) < (right.major, right.minor, right.patch)
    }

    public var description: String { "\(major).\(minor).\(patch)" }
}

/// Times in RFC 3339, as Go writes them: `2026-11-30T13:43:12.678778379Z`.
enum ServerMoment {
    static func unixMilliseconds(_ text: String) -> Int64? {
        guard let found = text.wholeMatch(of: /(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z/),
            let year = Int64(found.1), let month = Int64(found.2), let day = Int64(found.3),
            let hour = Int64(found.4), let minute = Int64(found.5), let second = Int64(found.6),
            (1...12).contains(month), (1...31).contains(day)
        else { return nil }
        let fraction = found.7.map { ($0 + "000").prefix(3) }.flatMap { Int64($0) } ?? 0
        let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
        return seconds * 1_000 + fraction
    }

    /// Returns the number of days since 1970 in the Gregorian calendar, whose years begin in March here.
    private static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let shifted = month <= 2 ? year - 1 : year
        let (era, yearOfEra) = (shifted / 400, shifted % 400)
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }
}
