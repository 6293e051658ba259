// swift-tools-version: 6.2
import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableExperimentalFeature("Lifetimes"),
    .treatAllWarnings(as: .error),
]

/// Through which all data goes. These are optimized, with all their assertions, when `deploy/test` builds everything by one build
/// for release, and so is what tests stand on; the others and the tests are not: of them that would cost more than it saves.
let optimizedInTests: Set<String> = [
    "Bytes", "Change", "Channels", "Delivery", "EventLog", "Gateway", "Ingest", "Judging", "Matching", "Net", "Policy",
    "Postgres", "Protocol", "Replication", "WebSocket",
]
let plain: [SwiftSetting] =
    Context.environment["DATA_PLANE_OPTIMIZED"] == nil ? [] : [.unsafeFlags(["-Onone"])]

/// A room of the house: its name and the rooms below that it may see (the table in Sources/README.md).
func room(_ name: String, _ mayImport: Target.Dependency...) -> Target {
    .target(
        name: name, dependencies: mayImport, exclude: pagesForPeople[name] ?? [],
        swiftSettings: strict + [.strictMemorySafety()] + (optimizedInTests.contains(name) ? [] : plain))
}

func executable(_ name: String, _ mayImport: Target.Dependency...) -> Target {
    .executableTarget(name: name, dependencies: mayImport, swiftSettings: strict + [.strictMemorySafety()] + plain)
}

/// What an app is given: a library that other packages can depend on. It sees none of the rooms.
let apps: [SwiftSetting] =
    [
        .swiftLanguageMode(.v6),
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        .treatAllWarnings(as: .error),
    ] + plain

/// Pages among the sources.
let pagesForPeople = ["Policy": ["SECURITY.md"]]

/// A wing of the house: rooms that lie in one folder of Sources, and see rooms of wings before it.
func wing(_ name: String, _ rooms: [Target]) -> [Target] {
    for room in rooms { room.path = "Sources/\(name)/\(room.name)" }
    return rooms
}

/// The tests of one room, which may also see the rooms needed to set its stage.
func tests(of name: String, _ mayImport: Target.Dependency...) -> Target {
    .testTarget(
        name: name + "Tests", dependencies: mayImport + ["TestSupport"], exclude: fixtures[name] ?? [],
        swiftSettings: strict + plain)
}

/// Files that tests read where they lie.
let fixtures = ["tidewire": ["Fixtures"], "ClusterChecks": ["Fixtures"]]

let base = wing(
    "base",
    [
        .target(name: "CLinux", cSettings: [.define("_GNU_SOURCE")]),
        .target(name: "CChecksum"),
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
        .systemLibrary(name: "CZstd", pkgConfig: "libzstd", providers: [.apt(["libzstd-dev"])]),
        .systemLibrary(name: "CUring", pkgConfig: "liburing", providers: [.apt(["liburing-dev"])]),
        .target(name: "CTexts", exclude: ["channel_probe.sql", "openapi.json"]),
        room("Bytes", "CChecksum"),
        room("System", "CLinux", "Bytes"),
        room("Crypto", "COpenSSL", "Bytes"),
        room("Diagnostics"),
        room("Change", "Bytes"),
    ])

let postgres = wing(
    "postgres",
    [
        .systemLibrary(name: "CPostgres", pkgConfig: "libpq", providers: [.apt(["libpq-dev"])]),
        room("Postgres", "CPostgres", "Bytes", "System", "Diagnostics"),
        room("Replication", "Postgres", "Change", "Bytes", "System", "Diagnostics"),
        room("Embedded", "CTexts", "Postgres", "System", "Diagnostics"),
    ])

let cluster = wing(
    "cluster",
    [
        .target(name: "CNats", linkerSettings: [.linkedLibrary("dl")]),
        room("Nats", "CNats", "System", "Diagnostics", "Bytes"),
        room("Cluster", "Replication", "Crypto", "Change", "Bytes"),
        room("ClusterChecks", "Bytes"),
    ])

let log = wing(
    "log",
    [
        room("EventLog", "Bytes", "System", "Diagnostics"),
        room(
            "Ingest", "Cluster", "Nats", "Replication", "EventLog", "Change", "Postgres", "System", "Diagnostics",
            "Bytes"),
    ])

let rules = wing(
    "rules",
    [
        room("Policy", "Change", "Bytes"),
        room("Matching", "Policy", "Change", "Bytes"),
        room("Auth", "Bytes", "Crypto"),
    ])

let wire = wing(
    "wire",
    [
        room("Protocol", "Change", "Bytes"),
        room("WebSocket", "CZlib", "Bytes", "Crypto"),
        room("Net", "CUring", "Bytes", "System", "Crypto", "Diagnostics"),
        room("Calling", "Crypto", "System", "Bytes"),
    ])

let queries = wing(
    "queries",
    [
        room("Asking", "Policy", "Postgres", "System", "Diagnostics"),
        room(
            "Catalog", "Asking", "Replication", "Policy", "Protocol", "Change", "Postgres", "System", "Diagnostics",
            "Bytes"),
        room("Authorizing", "CTexts", "Asking", "Protocol", "Postgres", "System", "Diagnostics"),
        room(
            "Judging", "Catalog", "Asking", "Replication", "Policy", "Change", "Postgres", "System", "Diagnostics",
            "Bytes"),
        room(
            "Snapshots", "Catalog", "Asking", "EventLog", "Protocol", "Change", "Postgres", "System", "Diagnostics",
            "Bytes"),
        room("Messages", "Asking", "Replication", "EventLog", "Change", "Postgres", "System", "Diagnostics", "Bytes"),
    ])

let hub = wing(
    "hub",
    [
        room("Settings", "Net", "WebSocket", "Auth", "Nats", "Crypto", "Diagnostics", "Bytes"),
        .target(name: "CPages", exclude: ["console"]),
        room("Pages", "CPages", "Settings", "WebSocket", "Crypto", "Diagnostics", "System", "Bytes"),
        room("Channels", "EventLog", "Bytes"),
        room("Positions", "Catalog", "EventLog", "Protocol"),
        room(
            "Delivery", "Judging", "Messages", "Catalog", "Asking", "EventLog", "Matching", "Policy", "Channels",
            "Protocol", "WebSocket", "Net", "Auth", "Change", "Diagnostics", "System", "Bytes"),
        room("Peers", "Delivery", "Channels", "Nats", "Diagnostics", "System", "Bytes"),
        room(
            "Gateway", "Peers", "CTexts", "Pages", "Positions", "Delivery", "Snapshots", "Judging", "Authorizing",
            "Messages", "Catalog",
            "Settings",
            "Asking", "EventLog", "Matching", "Policy", "Channels", "Protocol", "WebSocket", "Net", "Auth", "Change",
            "Diagnostics", "System", "Bytes"),
        room(
            "Projects", "Gateway", "Peers", "Delivery", "Snapshots", "Judging", "Authorizing", "Messages", "Catalog",
            "Ingest",
            "Settings", "Asking", "Replication", "EventLog", "Policy", "WebSocket", "Auth", "Change", "Postgres",
            "Crypto",
            "Diagnostics", "System", "Bytes"),
        room(
            "Server", "Projects", "Gateway", "Pages", "ClusterChecks", "Nats", "Calling", "Ingest", "Settings",
            "Replication", "Policy", "WebSocket", "Net", "Auth", "Postgres", "Crypto", "Diagnostics", "System"),
    ])

let evidence = wing(
    "evidence",
    [
        room("History", "CZstd", "EventLog", "Change", "Bytes", "System", "Diagnostics"),
        room(
            "Explaining", "Judging", "Catalog", "Asking", "History", "EventLog", "Replication", "Matching",
            "Policy", "Protocol", "Change", "Postgres", "Diagnostics", "System", "Bytes"),
        room("Replaying", "Calling", "History", "EventLog", "Change", "Postgres", "System", "Diagnostics", "Bytes"),
        room("Rehearsal", "Embedded", "WebSocket", "Postgres", "Crypto", "System", "Bytes"),
    ])

let app = wing(
    "app",
    [
        .target(
            name: "TidewireClient", dependencies: [.target(name: "COpenSSL", condition: .when(platforms: [.linux]))],
            swiftSettings: apps),
        .target(name: "TidewireClientTesting", dependencies: ["TidewireClient"], swiftSettings: apps),
        .target(name: "Examples", dependencies: ["TidewireClient"], swiftSettings: apps),
    ])

let program = wing(
    "program",
    [
        room("Console", "Settings", "System"),
        executable(
            "tidewire", "Console", "Server", "Projects", "Pages", "Explaining", "Replaying", "Rehearsal", "Calling",
            "Catalog", "ClusterChecks", "Ingest", "Settings", "History", "Embedded", "Replication", "EventLog",
            "Change",
            "Postgres", "Diagnostics", "System", "Bytes", "Crypto"),
    ])

let bench = wing(
    "bench",
    [
        room(
            "Bench", "Server", "Explaining", "Replaying", "Calling", "Gateway", "Ingest", "Settings", "Embedded",
            "History", "Replication", "EventLog", "Matching", "Policy", "WebSocket", "Net", "Change", "Postgres",
            "Crypto", "Diagnostics", "System", "CLinux", "Bytes", "TidewireClient", "Examples"),
        executable("tidewire-bench", "Console", "Bench", "Settings", "System"),
    ])

let proofs: [Target] = [
    .target(
        name: "TestSupport",
        dependencies: [
            "Embedded", "Postgres", "Replication", "EventLog", "WebSocket", "Calling", "Change", "System", "Bytes",
            "COpenSSL",
        ],
        path: "Tests/TestSupport",
        swiftSettings: strict),
    .target(
        name: "Simulator",
        dependencies: [
            "TestSupport", "Gateway", "Delivery", "Judging", "Authorizing", "Messages", "Catalog", "Asking", "Ingest",
            "History", "Settings", "Replication", "EventLog", "Policy", "Channels", "Net", "Auth", "Change", "Crypto",
            "Diagnostics", "System", "Bytes",
        ],
        path: "Tests/Simulator", exclude: ["Mutants"],
        swiftSettings: strict + plain),
    .executableTarget(
        name: "simulate", dependencies: ["Simulator"], path: "Tests/simulate", swiftSettings: strict + plain),
    tests(of: "Simulator", "Simulator", "simulate", "Change"),
    tests(of: "TidewireClient", "TidewireClient", "TidewireClientTesting"),
    tests(of: "Tidy", "System"),
    tests(of: "Bytes", "Bytes", "CChecksum"),
    tests(of: "Change", "Change", "Bytes"),
    tests(of: "Diagnostics", "Diagnostics"),
    tests(of: "System", "System", "Bytes"),
    tests(of: "Postgres", "Postgres", "System", "Bytes", "Diagnostics"),
    tests(of: "EventLog", "EventLog", "Diagnostics", "System", "Bytes"),
    tests(of: "History", "History", "EventLog", "Change", "System", "Bytes"),
    tests(of: "Crypto", "Crypto", "Bytes"),
    tests(of: "Policy", "Policy", "Change", "Postgres", "Bytes"),
    tests(of: "Matching", "Matching", "Policy", "Change", "Bytes"),
    tests(of: "Channels", "Channels", "EventLog", "Bytes"),
    tests(of: "Protocol", "Protocol", "Change", "Bytes"),
    tests(of: "WebSocket", "WebSocket", "Bytes", "Crypto"),
    tests(of: "Net", "Net", "COpenSSL", "Crypto", "Diagnostics", "System", "Bytes"),
    tests(of: "Auth", "Auth", "Crypto", "Bytes"),
    tests(of: "Pages", "Pages", "Settings", "WebSocket", "Crypto", "System", "Bytes"),
    tests(of: "Settings", "Settings", "Net", "Auth", "Diagnostics", "Bytes"),
    tests(
        of: "Ingest", "Ingest", "Cluster", "Nats", "Bytes", "Embedded", "Replication", "EventLog", "Change", "Postgres",
        "Diagnostics", "System"),
    tests(of: "Cluster", "Cluster", "Replication", "Change", "Bytes"),
    tests(
        of: "Peers", "Peers", "Delivery", "Channels", "EventLog", "Protocol", "Bytes", "Diagnostics", "Nats", "System"),
    tests(of: "Calling", "Calling"),
    tests(of: "ClusterChecks", "ClusterChecks"),
    tests(of: "Replaying", "Replaying", "History", "Postgres", "Change", "System", "Bytes"),
    tests(of: "Asking", "Asking", "Postgres", "Diagnostics", "System"),
    tests(
        of: "Catalog", "Catalog", "Asking", "Embedded", "Policy", "Protocol", "Change", "Postgres", "Diagnostics",
        "System"),
    tests(
        of: "Judging", "Judging", "Catalog", "Asking", "Embedded", "Policy", "Change", "Postgres", "Diagnostics",
        "System"),
    tests(
        of: "Messages", "Messages", "Ingest", "Asking", "Embedded", "Replication", "EventLog", "Change", "Postgres",
        "Diagnostics", "System", "Bytes"),
    tests(of: "Authorizing", "Authorizing", "Asking", "Embedded", "Protocol", "Postgres", "Diagnostics", "System"),
    tests(of: "Snapshots", "Snapshots", "Catalog", "EventLog", "Change", "System", "Bytes"),
    tests(
        of: "Delivery", "Delivery", "Judging", "Catalog", "EventLog", "Matching", "Policy", "Protocol", "Net", "Change",
        "Diagnostics", "System", "Bytes"),
    tests(of: "Positions", "Positions", "Catalog", "EventLog", "Protocol"),
    tests(
        of: "Gateway", "Gateway", "Catalog", "Channels", "Policy", "Settings", "Peers", "Protocol", "WebSocket",
        "EventLog", "Net", "Diagnostics", "System", "Bytes"),
    tests(
        of: "Projects", "Projects", "Gateway", "Settings", "EventLog", "History", "Diagnostics", "WebSocket", "Auth",
        "Crypto", "System", "Bytes"),
    tests(
        of: "Server", "Server", "ClusterChecks", "Projects", "Explaining", "Gateway", "Delivery", "Catalog", "Settings",
        "Embedded", "Ingest", "Replication",
        "History", "Replaying", "tidewire", "Console", "EventLog",
        "WebSocket", "Change", "Policy", "Crypto", "Postgres", "Diagnostics", "System", "Bytes"),
    tests(of: "Console", "Console", "Settings"),
    tests(of: "Bench", "Bench", "System", "Bytes"),
    tests(of: "Embedded", "Embedded", "Postgres", "System"),
    tests(
        of: "tidewire", "tidewire", "Console", "Server", "Projects", "Explaining", "Replaying", "Gateway", "Delivery",
        "Judging",
        "Authorizing",
        "Messages", "Catalog", "Ingest", "Settings",
        "Asking", "Embedded", "History", "Change", "Postgres", "System", "Bytes"),
    tests(
        of: "EndToEnd", "tidewire", "tidewire-bench", "TidewireClient", "Examples", "Crypto", "Diagnostics", "Server",
        "Projects", "Explaining", "Replaying", "History", "Gateway",
        "Delivery", "Judging",
        "Authorizing", "Messages", "Catalog", "Ingest", "Nats",
        "Settings", "Asking", "Embedded", "Replication", "EventLog", "Change",
        "Postgres", "System", "Bytes"),
    tests(of: "Replication", "Replication", "Postgres", "Change", "Diagnostics", "System", "Bytes"),
]

/// Who fuzzes: `libFuzzer` in a build of its own, with no more than what the fuzzers need (`Tests/Tools/fuzz`); or `seeded`, our
/// own small driver beside everything else, where `deploy/test` builds it. Nobody otherwise.
let whoFuzzes = Context.environment["FUZZED_BY"]

/// Brings the entry points that a `main` elsewhere calls: libFuzzer's or our driver's.
func fuzzer(_ name: String, _ mayImport: Target.Dependency...) -> Target {
    .executableTarget(
        name: "Fuzz" + name,
        dependencies: mayImport + ["FuzzSupport"] + (whoFuzzes == "seeded" ? ["FuzzDriver"] : []),
        path: "Tests/Fuzz/" + name,
        swiftSettings: strict + [.unsafeFlags(["-parse-as-library"])])
}
let fuzzers: [Target] = [
    .target(name: "FuzzSupport", dependencies: ["Bytes"], path: "Tests/Fuzz/Support", swiftSettings: strict),
    fuzzer("PgOutput", "TestSupport", "Replication", "Change", "Diagnostics", "Bytes"),
    fuzzer("Stored", "TestSupport", "Change", "Bytes"),
    fuzzer("JSON", "Change", "Bytes"),
    fuzzer("Message", "Protocol", "Bytes"),
    fuzzer("Segment", "TestSupport"),
    fuzzer("Token", "Auth", "Crypto", "Bytes"),
    fuzzer("Filter", "Policy", "Bytes"),
    fuzzer("Policy", "Policy", "Bytes"),
    fuzzer("HTTP", "TestSupport", "WebSocket", "Bytes"),
    fuzzer("Frames", "TestSupport", "WebSocket", "Bytes"),
]

let driver: Target = .target(name: "FuzzDriver", path: "Tests/Fuzz/Driver", publicHeadersPath: ".")

let house = base + postgres + cluster + log + rules + wire + queries + hub + evidence + app + program + bench + proofs
let fuzzed =
    base + postgres + rules + wire + (log + proofs).filter { ["EventLog", "TestSupport"].contains($0.name) } + fuzzers
let isForFuzzingAlone = whoFuzzes == "libFuzzer"

let package = Package(
    name: "tidewire",
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .visionOS(.v2)],
    products: isForFuzzingAlone
        ? []
        : ["tidewire", "tidewire-bench"].map { .executable(name: $0, targets: [$0]) }
            + ["TidewireClient", "TidewireClientTesting"].map { .library(name: $0, targets: [$0]) },
    targets: isForFuzzingAlone ? fuzzed : house + (whoFuzzes == "seeded" ? fuzzers + [driver] : []),
    cLanguageStandard: .gnu2x
)
