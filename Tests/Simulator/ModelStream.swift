import Bytes
import Change
import Diagnostics
import EventLog
import Ingest
import Replication
import System
import TestSupport

/// Stream from the model's database into the hub's log. It uses the real assembler and the real sink, on a disk that
/// may fail.
final class ModelStream {
    private let database: ModelDatabase
    private let storage: FaultyStorage
    private let time: VirtualTime
    private var slot: ModelSlot
    private var process: Process?
    private(set) var end: EventLogEnd?
    private(set) var failures = 0
    /// Position up to which all commits are in the log.
    private(set) var covered = LSN.zero
    private var lastGap = LSN.zero
    private var lastEpoch: UInt64?
    /// Gap in history that the log may not have durably yet.
    private var gapNoted: Gap?
    /// Called with the gap when history has a gap.
    var hasGap: (Gap) -> Void = { _ in }
    private let sinkTime: SinkTime
    /// Maximum age in milliseconds of the segments that the log keeps at the next removal; nil if it keeps all.
    private var retained: UInt64?
    private(set) var segmentsLetGo = 0
    /// Counter that distinguishes epochs that begin at the same time.
    private let epochs = Counter(1)

    private final class Process {
        let sink: LogSink
        var assembler: TransactionAssembler
        /// Messages that the hub will receive next.
        var messages: [[UInt8]] = []
        var nextMessage = 0
        var nextCommit: Int
        /// Tables that the server has described on this connection, with their number of columns and their replica
        /// identity.
        var announced: [UInt32: Announcement] = [:]
        var isInTransaction = false
        var isConnected = false

        init(_ sink: LogSink, from nextCommit: Int) {
            self.sink = sink
            self.nextCommit = nextCommit
            assembler = TransactionAssembler(spoolDirectory: MemoryDirectory(), primaryKey: { _ in ["id"] })
        }
    }

    private struct Announcement: Equatable {
        var extras: Int
        var isNamedByKey: Bool
        var definitions: Int
    }

    private let segmentBytes: UInt64
    /// True if the stream does not report changed policies.
    private let isSilent: Bool
    /// Random source for the delay before a log begins; nil if there is no delay.
    private var slowness: SeededRandom?
    private var busyUntil: UInt64 = 0

    init(
        _ database: ModelDatabase, _ storage: FaultyStorage, _ time: VirtualTime, segmentBytes: UInt64 = 32 << 10,
        isSilent: Bool = false, slowness: SeededRandom? = nil
    ) {
        self.segmentBytes = segmentBytes
        self.isSilent = isSilent
        self.slowness = slowness
        self.database = database
        self.storage = storage
        self.time = time
        slot = ModelSlot(database)
        sinkTime = SinkTime(time)
    }

    private static let retainedBytes: UInt64 = 256 << 10
    private static let leastRetainedSegments: UInt64 = 8

    private var options: EventLogOptions {
        var options = EventLogOptions(source: slot.system)
        options.segmentBytes = segmentBytes
        options.retentionBytes = max(Self.retainedBytes, segmentBytes * Self.leastRetainedSegments)
        // This age exceeds the duration of any simulation. Only the script decides when the log removes segments by
        // age.
        options.retentionAge = SinkTime.age
        options.preparesSegments = false
        options.now = { [time] in time.unixMicroseconds() }
        options.newEpoch = { [time, epochs] in time.monotonicNanoseconds() + epochs.next() }
        let finder = StoredKeys()
        options.keysOf = { kind, payload in
            switch kind {
            case .relation:
                finder.relation(payload)
                return []
            case .transaction: return finder.keys(ofTransaction: payload)
            default: return []
            }
        }
        return options
    }

    // MARK: The process

    /// Starts the hub's ingest: opens the log, and receives the changes that the log does not have.
    func start() throws {
        let sink = try LogSink(directory: storage, options: options, time: sinkTime) { [unowned self] in end = $0 }
        process = Process(sink, from: 0)
        if var chance = slowness {
            busyUntil = time.monotonicNanoseconds() + UInt64.random(in: 0...8_000, using: &chance) * 1_000_000
            slowness = chance
        }
        connect(sink)
    }

    /// Error while other running transactions keep PostgreSQL from creating a slot.
    private struct Busy: Error {}

    /// Connects to the server. After a failure the hub tries again.
    private func connect(_ sink: LogSink) {
        do {
            let isNew = sink.isNew
            if isNew, time.monotonicNanoseconds() < busyUntil { throw Busy() }
            try slot.settle(sink) { gap in
                lastGap = gap.to
                gapNoted = Gap(reason: gap.reason, from: gap.from, to: min(gapNoted?.to ?? gap.to, gap.to))
            }
            if isNew { lastGap = max(lastGap, sink.position) }
            let first =
                database.commits.firstIndex { $0.end > max(slot.confirmed, sink.position) } ?? database.lastCommit
            process = Process(sink, from: first)
            process?.isConnected = true
        } catch {
            failures += 1
            Log.shared.debug("the stream does not start", [.reason("\(error)")])
        }
        noteEpoch()
    }

    private func noteEpoch() {
        guard let epoch = end?.state.position.epoch, epoch != lastEpoch else { return }
        if lastEpoch != nil, let gapNoted { hasGap(gapNoted) }
        gapNoted = nil
        lastEpoch = epoch
    }

    /// Ends the process at once, possibly in the middle of its work.
    func die() {
        process = nil
        end = nil
    }

    /// Position up to which the log survives any failure.
    var durable: LSN { process?.sink.durablePosition ?? .zero }
    /// Position before which the log may have removed commits.
    var oldestKept: LSN { max(lastGap, process?.sink.segments.first.map { LSN($0.header.baseLSN) } ?? .zero) }

    var oldestOffset: UInt64? { process?.sink.segments.first?.firstOffset }

    /// End of the log.
    var place: LogPlace? {
        end.map { LogPlace(epoch: $0.state.position.epoch, offset: $0.state.position.offset) }
    }

    var isRunning: Bool { process != nil }

    /// Closes the connection. The log drops the received part of an unfinished transaction.
    func cut() {
        guard let process else { return }
        if process.isInTransaction { try? process.sink.abandon() }
        process.isInTransaction = false
        process.isConnected = false
    }

    // MARK: Receiving

    var isIdle: Bool {
        guard let process else { return false }
        return process.isConnected && process.nextCommit >= database.lastCommit
            && process.nextMessage >= process.messages.count
            && process.sink.position == process.sink.durablePosition
    }

    /// Receives at most `count` messages. If `flushes` is true and no message is left, flushes the log.
    func hear(atMost count: Int, flushes: Bool) {
        if let process, !process.isConnected { connect(process.sink) }
        guard let process, process.isConnected else { return }
        do {
            for _ in 0..<count {
                guard let message = nextMessage(of: process) else { break }
                try process.assembler.receive(message.span.bytes, into: process.sink) { _ in throw Stalled() }
            }
            if flushes, !process.isInTransaction { try flush(process.sink) }
        } catch {
            failures += 1
            Log.shared.debug("the stream ends", [.reason("\(error)")])
            cut()
        }
    }

    private struct Stalled: Error {}

    private func nextMessage(of process: Process) -> [UInt8]? {
        while process.nextMessage == process.messages.count {
            guard process.nextCommit < database.lastCommit else { return nil }
            process.messages = messages(of: database.commits[process.nextCommit], on: process)
            process.nextMessage = 0
            process.nextCommit += 1
        }
        let place = process.nextMessage
        process.nextMessage += 1
        process.isInTransaction = place + 1 < process.messages.count
        return process.messages[place]
    }

    private func flush(_ sink: LogSink) throws {
        let hasPending = sink.pendingBytes > 0
        if hasPending, let retained { sinkTime.isAhead(retaining: retained) }
        defer { sinkTime.isBack() }
        let segments = sink.segments.count
        try sink.flush()
        if hasPending, retained != nil {
            retained = nil
            segmentsLetGo += max(0, segments - sink.segments.count)
        }
        noteEpoch()
        slot.confirm(sink.durablePosition)
        covered = isIdle ? max(sink.durablePosition, database.walEnd) : sink.durablePosition
    }

    /// Applies a loss to the followed history while the process keeps running.
    func lose(_ loss: ForcedLoss) {
        cut()
        slot.lose(loss)
    }

    /// Makes the log remove segments older than this when it next writes.
    func retain(milliseconds: UInt64) { retained = milliseconds }

    // MARK: Messages

    private func messages(of commit: ModelCommit, on process: Process) -> [[UInt8]] {
        // PostgreSQL does not send a transaction without published changes.
        guard commit.isPublished else { return [] }
        let time = commit.time - 946_684_800_000_000
        var messages = [PgOutput.begin(commit: commit.lsn.rawValue, time: time, xid: commit.xid)]
        if commit.defines, !isSilent { messages.append(PgOutput.logical("rt:ddl", [])) }
        for change in commit.changes { append(change, commit, on: process, to: &messages) }
        messages.append(PgOutput.commit(commit.lsn.rawValue, end: commit.end.rawValue, time: time))
        return messages
    }

    private func append(
        _ change: ModelChange, _ commit: ModelCommit, on process: Process, to messages: inout [[UInt8]]
    ) {
        let oid = change.table.rawValue
        if change.table == .messages { return say(change, on: process, to: &messages) }
        let announcement = Announcement(
            extras: commit.rules.extras(of: change.table), isNamedByKey: commit.rules.isNamedByKey(change.table),
            definitions: isSilent ? commit.rules.hashOfColumns : commit.rules.hashNumber)
        if process.announced[oid] != announcement {
            process.announced[oid] = announcement
            messages.append(relation(change.table, announcement))
        }
        let cells = { (row: ModelRow) in Self.cells(row, announcement.extras) }
        let isNamedByKey = announcement.isNamedByKey
        let key = { (row: ModelRow) in Self.key(row, announcement.extras) }
        switch change.kind {
        case .insert(let row): messages.append(PgOutput.insert(oid, cells(row)))
        case .update(let old, let new):
            let keyOnly: PgOutput.Old? = old.id == new.id ? nil : .key(key(old))
            messages.append(PgOutput.update(oid, old: isNamedByKey ? keyOnly : .full(cells(old)), cells(new)))
        case .truncate: messages.append(PgOutput.truncate([oid]))
        case .delete(let row):
            messages.append(PgOutput.delete(oid, isNamedByKey ? .key(key(row)) : .full(cells(row))))
        }
    }

    private func say(_ change: ModelChange, on process: Process, to messages: inout [[UInt8]]) {
        let oid = change.table.rawValue
        let announcement = Announcement(extras: 0, isNamedByKey: true, definitions: 0)
        if process.announced[oid] != announcement {
            process.announced[oid] = announcement
            let columns: [PgOutput.Column] = [
                .init("topic"), .init("extension"), .init("payload", type: 3802), .init("event"),
                .init("private", type: 16), .init("updated_at", type: 1114),
                .init("inserted_at", type: 1114, isIdentity: true), .init("id", type: 2950, isIdentity: true),
            ]
            messages.append(PgOutput.relation(oid, schema: "realtime", "messages", identity: .primaryKey, columns))
        }
        guard let row = change.new ?? change.old else { preconditionFailure("a message is a row") }
        let time = Cell.text("2027-01-15 08:00:00")
        let tail = String(String(row.version + 1_000_000_000_000).dropFirst())
        let id = Cell.text("00000000-0000-4000-8000-\(tail)")
        guard change.operation == .insert else {
            return messages.append(PgOutput.delete(oid, .key([.null, .null, .null, .null, .null, .null, time, id])))
        }
        messages.append(
            PgOutput.insert(
                oid,
                [
                    .text(row.owner), .text("broadcast"), .text(#"{"version": \#(row.version)}"#), .text("said"),
                    .text("f"), time, time, id,
                ]))
    }

    private func relation(_ table: ModelTable, _ announcement: Announcement) -> [UInt8] {
        let isFull = !announcement.isNamedByKey
        var columns: [PgOutput.Column] = [
            .init("id", type: 23, isIdentity: true), .init("owner", isIdentity: isFull),
            .init("room", type: 23, isIdentity: isFull), .init("body", isIdentity: isFull),
            .init("version", type: 23, isIdentity: isFull),
        ]
        for number in 0..<announcement.extras { columns.append(.init("extra\(number)", isIdentity: isFull)) }
        return PgOutput.relation(table.rawValue, table.name, identity: isFull ? .full : .primaryKey, columns)
    }

    private static func cells(_ row: ModelRow, _ extras: Int) -> [Cell] {
        [.text("\(row.id)"), .text(row.owner), .text("\(row.room)"), .text(row.body), .text("\(row.version)")]
            + (0..<extras).map { _ in .null }
    }

    private static func key(_ row: ModelRow, _ extras: Int) -> [Cell] {
        [.text("\(row.id)"), .null, .null, .null, .null] + (0..<extras).map { _ in .null }
    }
}

extension ModelRules {
    /// Number that differs after every change of definitions, so that the server describes the tables again.
    fileprivate var hashNumber: Int { (sharesRoomZero ? 1 : 0) + hashOfColumns }

    /// Number that differs after every change of definitions except policies.
    fileprivate var hashOfColumns: Int { extras.values.reduce(0, +) * 2 + namedByKey.count * 1000 }
}
