import Foundation
import TestSupport
import Testing

@testable import ClusterChecks

/// Reports that real servers gave, each alone or as one of three.
private enum Recorded {
    static func text(_ name: String) throws -> String {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        return try String(contentsOf: folder.appendingPathComponent("Fixtures/\(name).json"), encoding: .utf8)
    }

    /// Returns the report of a server of version 2.15.1 in a cluster of three, with texts of it replaced.
    static func report(_ name: String, _ changes: [String: String] = [:]) throws -> ServerReport {
        var text = try text("varz-2.15.1").replacing("\"server_name\": \"s3\"", with: "\"server_name\": \"\(name)\"")
            .replacing(/"server_id": "\w+"/, with: "\"server_id\": \"ID\(name)\"")
        for (old, new) in changes {
            #expect(text.contains(old), "\(old)")
            text = text.replacing(old, with: new)
        }
        return try #require(ServerReport(Array(text.utf8)))
    }
}

@Suite(.within(minutes: 1)) struct ClusterCheckTests {
    /// Time at which the recorded server of version 2.15.1 answered.
    private static let now = ServerMoment.unixMilliseconds("2026-11-30T14:12:09.647Z") ?? 0

    private func findings(
        _ reports: [ServerReport], monitors: [String]? = nil, later: Int64 = 0,
        _ change: (inout ClusterNeeds) -> Void = { _ in }
    ) -> [ClusterFinding] {
        let answers = reports.enumerated().map { index, report in
            MonitorAnswer(
                monitor: monitors?[index] ?? "http://\(report.name):8222", outcome: .report(report),
                asked: Self.now + later - 20, answered: Self.now + later + 20)
        }
        return findings(answers, change)
    }

    private func findings(
        _ answers: [MonitorAnswer], _ change: (inout ClusterNeeds) -> Void = { _ in }
    ) -> [ClusterFinding] {
        var needs = ClusterNeeds(
            replicas: 3, storedBytes: 10 << 30, isEncrypted: false, hasLogin: false, isTrial: false)
        change(&needs)
        // The recorded servers ask for no login, which is a warning of its own.
        return ClusterCheck.findings(answers, needs).filter { $0.kind != .open }
    }

    private func three(_ changes: [String: String] = [:]) throws -> [ServerReport] {
        try ["s1", "s2", "s3"].map { try Recorded.report($0, changes) }
    }

    @Test func `reads the reports of real servers`() throws {
        let report = try Recorded.report("s3")
        #expect(report.name == "s3" && report.version == ServerVersion(2, 15, 1) && report.cluster == "tw")
        #expect(report.maximumPayload == 1 << 20 && !report.asksForLogin && !report.isEncrypted)
        #expect(report.unixMilliseconds == Self.now)
        let stream = try #require(report.jetStream)
        #expect(stream.syncsAlways && stream.clusterSize == 3 && stream.leader == "s2" && stream.hasLeader)
        #expect(stream.storeDirectory == "/var/lib/nats" && stream.maximumStorage == 30_097_397_760)
        let old = try #require(ServerReport(Array(Recorded.text("varz-2.12.0").utf8)))
        #expect(old.version == ServerVersion(2, 12, 0) && old.cluster == nil)
        #expect(
            old.jetStream?.syncsAlways == false && old.jetStream?.clusterSize == 1 && old.jetStream?.hasLeader == true)
    }

    @Test func `three servers as they should be have no fault`() throws {
        #expect(try findings(three()).isEmpty)
    }

    @Test func `an old server alone, with default sync, has each fault once, with its repair`() throws {
        let old = try #require(ServerReport(Array(Recorded.text("varz-2.12.0").utf8)))
        let found = findings([old], later: (old.unixMilliseconds ?? 0) - Self.now)
        #expect(found.map(\.kind) == [.version, .lazySync, .tooFewServers])
        #expect(found.allSatisfy { $0.severity == .refusal && !$0.repair.isEmpty })
        #expect(found[0].message == "old: version 2.12.0 can lose messages that it has acknowledged")
        #expect(found[1].detail.contains("every 120 s"))
        #expect(found[1].configuration == "jetstream { store_dir: /var/lib/nats, sync_interval: always }")
        #expect(found[2].hint.contains("routes: [nats://nats1:6222, nats://nats2:6222, nats://nats3:6222]"))
    }

    @Test func `a trial has warnings, and no refusals`() throws {
        let old = try #require(ServerReport(Array(Recorded.text("varz-2.12.0").utf8)))
        let found = findings([old], later: (old.unixMilliseconds ?? 0) - Self.now) { $0.isTrial = true }
        #expect(found.count == 3 && found.allSatisfy { $0.severity == .warning })
        #expect(
            findings([old], later: (old.unixMilliseconds ?? 0) - Self.now) { $0.replicas = 1 }.map(\.kind) == [
                .version, .lazySync,
            ])
    }

    /// Changes of a report, each with the fault that it makes.
    @Test(arguments: [
        ("\"version\": \"2.15.1\"", "\"version\": \"2.15.0\"", ClusterFinding.Kind.version),
        ("\"sync_always\": true", "\"sync_always\": false", .lazySync),
        ("\"max_payload\": 1048576", "\"max_payload\": 700000", .payload),
        ("\"max_storage\": 30097397760", "\"max_storage\": 10000000000", .storage),
        ("\"cluster_size\": 3", "\"cluster_size\": 2", .tooFewServers),
        ("\"auth_timeout\": 2,\n  \"", "\"auth_required\": true,\n  \"", .loginWanted),
        ("\"tls_timeout\": 2,\n  \"", "\"tls_required\": true,\n  \"", .encrypted),
    ])
    func `a fault of one server names this server`(old: String, new: String, kind: ClusterFinding.Kind) throws {
        let reports = [try Recorded.report("s1"), try Recorded.report("s2", [old: new]), try Recorded.report("s3")]
        let found = findings(kind == .tooFewServers ? [reports[1]] : reports, monitors: ["a", "b", "c"])
        #expect(found.contains { $0.kind == kind && $0.severity == .refusal }, "\(found)")
        #expect(found.count == 1 || kind == .tooFewServers)
        if kind != .tooFewServers { #expect(found.first?.servers == ["s2"]) }
    }

    @Test func `JetStream that is off is reported, and nothing else of it`() throws {
        let text = try Recorded.text("varz-2.15.1")
        let start = try #require(text.range(of: "\"jetstream\": {"))
        let end = try #require(text.range(of: "\"tls_timeout\": 2,\n  \"write_deadline\""))
        let without = text[..<start.lowerBound] + "\"jetstream\": {},\n  " + text[end.lowerBound...]
        let report = try #require(ServerReport(Array(without.utf8)))
        let found = findings([report])
        #expect(found.map(\.kind) == [.jetStreamOff] && found.first?.severity == .refusal)
    }

    @Test func `servers of two clusters, or without routes, are not one cluster`() throws {
        var reports = try three()
        reports[1].cluster = "other"
        #expect(findings(reports).map(\.kind) == [.differentClusters])
        reports = try three()
        for index in reports.indices { reports[index].jetStream?.clusterSize = 1 }
        #expect(findings(reports) { $0.replicas = 1 }.map(\.kind) == [.differentClusters])
    }

    @Test func `the hub waits for servers that do not answer or have no leader`() throws {
        let silent = ["a", "b"].map {
            MonitorAnswer(monitor: $0, outcome: .silent(reason: "refused"), asked: 0, answered: 0)
        }
        let found = findings(silent)
        #expect(found.map(\.kind) == [.silent] && found.first?.severity == .wait && found.first?.servers == ["a", "b"])
        let leaderless = findings(try three(["      \"leader\": \"s2\",\n": ""]))
        #expect(leaderless.map(\.kind) == [.noLeader] && leaderless.first?.severity == .wait)
    }

    @Test func `a server that is away while others answer is a warning`() throws {
        let reports = try three().prefix(2).map {
            MonitorAnswer(monitor: $0.name, outcome: .report($0), asked: Self.now, answered: Self.now)
        }
        let away = MonitorAnswer(monitor: "c", outcome: .silent(reason: "refused"), asked: 0, answered: 0)
        let found = findings(reports + [away])
        #expect(found.map(\.kind) == [.silent] && found.first?.severity == .warning)
        var leader = try Recorded.report("s1")
        leader.jetStream?.offline = ["s3"]
        let others = try [leader, Recorded.report("s2")]
        #expect(findings(others).map(\.kind) == [.offline, .unchecked])
    }

    @Test func `what is no NATS server is refused`() {
        for text in ["", "{}", "<html>", "{\"server_id\": 1}", "[1]", "{\"server_id\": \"a\", \"version\": \"x\"}"] {
            #expect(ServerReport(Array(text.utf8)) == nil)
        }
        let found = findings([MonitorAnswer(monitor: "a", outcome: .foreign, asked: 0, answered: 0)])
        #expect(found.map(\.kind) == [.foreign] && found.first?.severity == .refusal)
    }

    @Test func `two servers of one name are refused, one server at two addresses is a warning`() throws {
        var reports = try three()
        reports[1].name = "s1"
        #expect(findings(reports).map(\.kind) == [.sameName] && findings(reports).first?.servers == ["s1"])
        let twice = try [Recorded.report("s1"), Recorded.report("s1"), Recorded.report("s2")]
        let found = findings(twice, monitors: ["x", "y", "z"])
        #expect(found.map(\.kind) == [.sameServer] && found.first?.servers == ["x", "y"])
        #expect(found.first?.severity == .warning)
    }

    @Test func `clocks that are apart are a warning, whichever is ahead`() throws {
        #expect(try findings(three(), later: 1_900).isEmpty && findings(three(), later: -1_900).isEmpty)
        for later: Int64 in [5_020, -5_020] {
            let found = try findings(three(), later: later)
            #expect(found.map(\.kind) == [.clocks] && found.first?.severity == .warning)
            #expect(found.first?.detail.contains("by 5 s") == true, "\(found)")
        }
    }

    @Test func `a log without limit needs no certain storage, and access must fit`() throws {
        let small = try three(["\"max_storage\": 30097397760": "\"max_storage\": 1"])
        #expect(findings(small) { $0.storedBytes = nil }.isEmpty)
        #expect(try findings(three()) { $0.isEncrypted = true }.map(\.kind) == [.plain])
        let open = ClusterCheck.findings(
            try three().map {
                MonitorAnswer(monitor: $0.name, outcome: .report($0), asked: Self.now, answered: Self.now)
            },
            ClusterNeeds(replicas: 3, storedBytes: nil, isEncrypted: false, hasLogin: true, isTrial: false))
        #expect(open.map(\.kind) == [.open] && open.first?.severity == .warning)
    }

    @Test(arguments: [
        ("1970-01-01T00:00:00Z", 0), ("2000-02-29T12:00:00.5Z", 951_825_600_500),
        ("2026-11-30T13:43:12.678778379Z", 1_796_046_192_678),
    ])
    func `reads times`(text: String, milliseconds: Int64) {
        #expect(ServerMoment.unixMilliseconds(text) == milliseconds)
        #expect(ServerMoment.unixMilliseconds(text + "x") == nil && ServerMoment.unixMilliseconds("") == nil)
    }

    @Test func `versions are compared number by number`() {
        #expect(
            ServerVersion("2.9.10")! < ServerVersion(2, 10, 0)
                && ServerVersion("2.15.1-RC.1") == ServerVersion(2, 15, 1))
        for text in ["", "2.15", "2.15.1.1", "v2.15.1", "a.b.c"] { #expect(ServerVersion(text) == nil, "\(text)") }
    }

    /// Checks that no bytes crash the reader of reports.
    @Test(arguments: seeds(20)) func `damaged reports are read or refused`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let whole = try Array(Recorded.text("varz-2.15.1").utf8)
        for _ in 0..<50 {
            var bytes = whole
            for _ in 0..<Int.random(in: 1...5, using: &random) {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 32...126, using: &random)
            }
            if let report = ServerReport(bytes) { _ = findings([report]) }
            #expect(ServerReport(Array(whole.prefix(Int.random(in: 0..<whole.count, using: &random)))) == nil)
        }
    }
}
