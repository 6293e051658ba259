import Bytes
import Cluster
import Diagnostics
import TestSupport
import Testing

@testable import Ingest

/// Tests of the configuration that a hub wants its cluster's stream to have.
@Suite(.within(minutes: 1)) struct StreamConfigurationTests {
    private let names = ClusterNames(key: "app")
    private let log = ClusterLogID(high: 1, low: 2)
    private let week = StreamConfiguration(replicas: 3, age: .seconds(604_800), bytes: 1 << 30)

    @Test func `a stream that was made by the same settings is left as it is`() {
        #expect(week.update(of: week.made(names, log), names) == nil)
        let endless = StreamConfiguration(replicas: 3, age: nil, bytes: nil)
        #expect(endless.update(of: endless.made(names, log), names) == nil)
    }

    @Test func `what differs is changed and named, and all else is kept`() throws {
        var config = week.made(names, log)
        config["duplicate_window"] = .number(120_000_000_000)
        config["placement"] = .object(JSONObject([("cluster", .string("c"))]))
        let day = StreamConfiguration(replicas: 1, age: .seconds(60), bytes: nil)
        let found = try #require(day.update(of: config, names))
        #expect(found.changes == ["num_replicas 3 → 1", "max_age 604800s → 60s", "max_bytes 1073741824 → unlimited"])
        #expect(found.config["max_age"]?.integer == 60_000_000_000 && found.config["num_replicas"]?.integer == 1)
        #expect(found.config["max_bytes"]?.integer == -1)
        // Servers refuse a longer window for duplicates than the age of messages.
        #expect(found.config["duplicate_window"]?.integer == 60_000_000_000)
        #expect(found.config["placement"] == config["placement"] && found.config["metadata"] == config["metadata"])
        #expect(day.isFewerReplicas(than: config) && !week.isFewerReplicas(than: found.config))
    }

    @Test func `protection that somebody took away comes back`() throws {
        var config = week.made(names, log)
        config["deny_delete"] = nil
        config["allow_rollup_hdrs"] = .bool(true)
        let changes = try #require(week.update(of: config, names)).changes
        #expect(changes == ["deny_delete false → true", "allow_rollup_hdrs true → false"])
    }

    @Test(arguments: [
        ("storage", JSONValue.string("memory")), ("retention", .string("workqueue")), ("sealed", .bool(true)),
        ("mirror", .object(JSONObject([("name", .string("other"))]))),
        ("sources", .array([.object(JSONObject([("name", .string("other"))]))])),
    ])
    func `what servers do not change makes a stream unfit`(name: String, value: JSONValue) {
        var config = week.made(names, log)
        #expect(StreamConfiguration.fault(of: config) == nil)
        config[name] = value
        #expect(StreamConfiguration.fault(of: config) != nil)
    }
}

/// Tests of the place of the stream at which a node goes on, and of the reasons for which it does not.
@Suite(.within(minutes: 1)) struct ReplicaPlaceTests {
    private let log = ClusterLogID(high: 1, low: 2)
    private let end = StreamEnd.unknown

    private func refusal(
        _ content: ReplicaFile.Content, hasLog: Bool = true, _ stream: ClusterStream?
    ) -> ClusterRefusal? {
        do throws(Replica.Diverged) {
            _ = try content.place(hasLog: hasLog, in: stream)
            return nil
        } catch {
            return error.kind
        }
    }

    private func content(_ sequence: UInt64, of log: ClusterLogID? = nil) -> ReplicaFile.Content {
        .whole(StreamMark(log: log ?? self.log, sequence: sequence, chain: ClusterChain()), end)
    }

    @Test func `a node goes on where its log ends in the stream`() throws {
        let stream = ClusterStream(log: log, first: 5, last: 9)
        #expect(try content(7).place(hasLog: true, in: stream).0.sequence == 7)
        #expect(try content(4).place(hasLog: true, in: stream).0.sequence == 4)
        #expect(try ReplicaFile.Content.none.place(hasLog: false, in: stream).0.sequence == 4)
        #expect(try ReplicaFile.Content.damaged.place(hasLog: true, in: stream).0.sequence == 4)
        #expect(
            try content(7, of: ClusterLogID(high: 3, low: 4)).place(hasLog: false, in: stream).0
                == StreamMark(
                    log: log, sequence: 4, chain: nil))
        let empty = ClusterStream(log: log, first: 0, last: 0)
        #expect(try ReplicaFile.Content.none.place(hasLog: true, in: empty).0.sequence == 0)
    }

    @Test func `each reason for which a node cannot go on has its name`() {
        let stream = ClusterStream(log: log, first: 5, last: 9)
        #expect(refusal(content(10), stream) == .logAhead)
        #expect(refusal(content(3), stream) == .olderThanStream)
        #expect(refusal(content(7, of: ClusterLogID(high: 3, low: 4)), stream) == .otherStream)
        #expect(refusal(.none, stream) == .otherLog)
        #expect(refusal(content(7), nil) == .streamMissing)
    }

    @Test func `only a log that follows no stream makes one`() {
        #expect(ReplicaFile.Content.none.mayMakeStream(hasLog: true))
        #expect(ReplicaFile.Content.none.mayMakeStream(hasLog: false))
        #expect(!content(7).mayMakeStream(hasLog: true) && !ReplicaFile.Content.damaged.mayMakeStream(hasLog: true))
        #expect(content(7).mayMakeStream(hasLog: false))
    }
}

/// Tests of how far behind a node says that it is.
@Suite(.within(minutes: 1)) struct ClusterLagTests {
    private static func seconds(_ count: UInt64) -> UInt64 { count * 1_000_000_000 }

    private func report(_ sequence: UInt64, of last: UInt64, caughtUpAt: UInt64?) -> ClusterStatus.Report {
        var report = ClusterStatus.Report(beganAt: Self.seconds(1))
        report.state = .following
        (report.sequence, report.last, report.caughtUpAt) = (sequence, last, caughtUpAt)
        return report
    }

    @Test func `a node that has everything is not behind`() {
        let report = report(7, of: 7, caughtUpAt: Self.seconds(2))
        #expect(
            report.missing == 0 && report.lag(at: Self.seconds(90)) == 0 && !report.isFarBehind(at: Self.seconds(90)))
    }

    @Test func `a node that never had everything is far behind from the start`() {
        let report = report(3, of: 7, caughtUpAt: nil)
        #expect(report.missing == 4 && report.lag(at: Self.seconds(4)) == Self.seconds(3))
        #expect(report.isFarBehind(at: Self.seconds(4)))
    }

    @Test func `a node may be behind for a while`() {
        let report = report(3, of: 7, caughtUpAt: Self.seconds(20))
        #expect(report.lag(at: Self.seconds(25)) == Self.seconds(5) && !report.isFarBehind(at: Self.seconds(25)))
        #expect(report.isFarBehind(at: Self.seconds(31)))
    }

    @Test func `the feeder is never behind`() {
        var report = report(3, of: 7, caughtUpAt: nil)
        report.state = .feeding
        #expect(report.lag(at: Self.seconds(90)) == 0 && !report.isFarBehind(at: Self.seconds(90)))
    }
}
