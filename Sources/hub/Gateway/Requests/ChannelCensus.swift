import Auth
import Bytes
import Change
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Synchronization
import System

/// List of a project's current channels, for operators. Each loop counts its own channels between two turns.
public struct ChannelCensus: Sendable {
    struct Entry: Sendable {
        var topic: [UInt8]
        var session: UInt64
        var number: UInt32
        var role: [UInt8]
        var subject: [UInt8]
        var isPrivate: Bool
        /// Bindings as clients write them, in JSON, with the values of filters masked.
        var bindings: [UInt8]
        /// Offset up to which the hub has sent everything to the client; nil until it has answered the join.
        var sent: UInt64?
        var queuedBytes: Int
        /// True if the client reads more slowly than the hub sends.
        var isSlow: Bool
    }

    /// Listed channels: those that are furthest behind.
    private var entries: [Entry] = []
    /// Number of all channels, including those that are not listed.
    private var count = 0
    /// Number of loops that did not answer in time.
    private var loopsMissing = 0
    /// Offset of the log's end after the loops had answered.
    private var end: UInt64 = 0
    /// Age in seconds of the first transaction that the hub has not sent to a channel, by the channel's sent offset.
    private var ages: [UInt64: Double] = [:]

    // MARK: Counting

    /// Asks all loops for their channels, and returns the answers that arrive within the given time.
    public static func take(of project: Project, waiting patience: Duration) -> ChannelCensus {
        let slip = CensusSlip(loops: project.mailboxes.count)
        for mailbox in project.mailboxes { mailbox.post(.census(slip)) }
        var census = ChannelCensus()
        for part in slip.wait(patience) {
            guard let part else {
                census.loopsMissing += 1
                continue
            }
            assert(
                part.entries.count == min(part.count, Limits.maximumCensusEntries), "a loop lists as many as are kept")
            census.count += part.count
            census.entries += part.entries
        }
        // Reading the end after the counts keeps every sent offset at or below the end.
        census.end = project.delivery.log.end()?.state.position.offset ?? 0
        census.entries = Self.furthestBehind(census.entries)
        census.findAges(in: project)
        return census
    }

    static func furthestBehind(_ entries: [Entry]) -> [Entry] {
        Array(
            entries.sorted { ($0.sent ?? 0, $0.session, $0.number) < ($1.sent ?? 0, $1.session, $1.number) }
                .prefix(Limits.maximumCensusEntries))
    }

    /// Determines the ages for the few lowest sent offsets. Each age needs a look-up in the log.
    private mutating func findAges(in project: Project) {
        let behind = Set(entries.compactMap(\.sent)).filter { $0 < end }.sorted().prefix(Limits.maximumCensusAges)
        let now = Clock.unixMicroseconds()
        for offset in behind {
            guard let committed = try? Self.commitTime(at: offset, of: project.delivery.log) else { continue }
            ages[offset] = Double(max(0, now - committed)) / 1_000_000
        }
    }

    private static func commitTime(at offset: UInt64, of log: LogSource) throws -> Int64? {
        var reader = try EventLogReader(directory: log.open(), from: .offset(offset))
        while try reader.next() {
            if reader.entry.kind == .transaction { return try TransactionPart(reader.payload).info.commitTime }
        }
        return nil
    }

    // MARK: Telling

    public var json: [UInt8] {
        var json = ByteWriter(capacity: entries.count * 256 + 256)
        json.append("{\"end\":\(end),\"channels\":\(count),\"loops_without_answer\":\(loopsMissing),\"data\":[")
        for (place, entry) in entries.enumerated() {
            if place > 0 { json.append(",") }
            append(entry, to: &json)
        }
        json.append("]}")
        return json.copied()
    }

    private func append(_ entry: Entry, to json: inout ByteWriter) {
        func text(_ name: StaticString, _ bytes: [UInt8]) {
            json.append(name)
            JSONText.appendString(String(decoding: bytes, as: UTF8.self), to: &json)
        }
        text("{\"topic\":", entry.topic)
        json.append(",\"session\":")
        JSONText.appendString(entry.session == 0 ? "" : Hex.text(entry.session), to: &json)
        json.append(",\"channel\":\(entry.number)")
        text(",\"role\":", entry.role)
        text(",\"user\":", entry.subject)
        json.append(",\"private\":\(entry.isPrivate),\"bindings\":")
        json.append(entry.bindings.isEmpty ? Array("[]".utf8) : entry.bindings)
        let lag = entry.sent.map { end - min($0, end) }
        json.append(",\"position\":\(entry.sent.map { "\($0)" } ?? "null"),\"lag\":\(lag.map { "\($0)" } ?? "null")")
        let age = lag == 0 ? 0 : entry.sent.flatMap { ages[$0] }
        json.append(",\"lag_seconds\":\(age.map { Self.seconds($0) } ?? "null")")
        json.append(",\"queued_bytes\":\(entry.queuedBytes),\"slow\":\(entry.isSlow)}")
    }

    private static func seconds(_ value: Double) -> String {
        let tenths = UInt64((value * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}

/// Answers of all loops to one census, for the thread that waits for them.
public final class CensusSlip: Sendable {
    typealias Part = (count: Int, entries: [ChannelCensus.Entry])

    private let parts: Mutex<[Part?]>
    private let pulse = Pulse()

    init(loops: Int) { parts = Mutex(Array(repeating: nil, count: loops)) }

    func put(_ entries: [ChannelCensus.Entry], of loop: Int) {
        let kept = ChannelCensus.furthestBehind(entries)
        parts.withLock { parts in
            let isFirst = parts[loop] == nil
            assert(isFirst, "a loop counts its channels once")
            parts[loop] = (entries.count, kept)
        }
        pulse.beat()
    }

    func wait(_ patience: Duration) -> [Part?] {
        let deadline = Clock.monotonicNanoseconds() + patience.wholeNanoseconds
        var seen: UInt64 = 0
        while true {
            let (all, isWhole) = parts.withLock { parts in (parts, parts.allSatisfy { $0 != nil }) }
            if isWhole || Clock.monotonicNanoseconds() >= deadline { return all }
            seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        }
    }
}

extension ProjectLoop {
    /// Adds this loop's channels to the census.
    func count(on slip: CensusSlip) {
        var entries: [ChannelCensus.Entry] = []
        for place in channels.indices {
            guard let channel = channels[place], channel.feed == nil else { continue }
            entries.append(
                ChannelCensus.Entry(
                    topic: channel.topic, session: channel.session.ledgerNumber, number: channel.id.incarnation,
                    role: channel.claims.role.copied(), subject: channel.claims.subject.copied(),
                    isPrivate: channel.conversation.isPrivate, bindings: channel.bindingsForCensus,
                    sent: returns.sentOffset(of: channel),
                    queuedBytes: loop.queuedBytes(of: channel.session.connection), isSlow: channel.session.isSlow))
        }
        slip.put(entries, of: clients.number)
    }
}
