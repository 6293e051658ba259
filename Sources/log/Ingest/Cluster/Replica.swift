import Bytes
import Change
import Cluster
import Diagnostics
import EventLog
import Replication
import System

/// Log of one node of a cluster: it applies the batches of the cluster's stream to the node's own event log.
///
/// All nodes apply the same batches in the same order, so a change has the same position in every log. What the log has
/// already is passed over, so reading may begin again at any earlier place. The ingest thread owns the replica.
final class Replica {
    let log: LogSink
    private(set) var reader: StreamReader
    /// Knowledge of who holds the slot.
    var tenure: Tenure
    /// True while this node holds the slot: its own stream then knows what it covers.
    var isFeeding = false

    private let coverage: StreamCoverage
    private let messages: StreamCoverage
    private let file: ReplicaFile
    /// Batches that were read and are not applied yet, oldest first.
    private var waiting: [StreamBatch] = []
    /// Offset of the first batch's next record.
    private var offset = 0
    /// Place at which a log stands that has everything up to the record at hand, by the stream alone. In it lies the
    /// epoch of the record.
    private var end: StreamEnd
    /// Number of changes of the unfinished transaction.
    private var unfinished: UInt64 = 0
    private var schemas: [UInt64: Schema] = [:]
    private var kept = Kept()

    /// Content of the file beside the log, with the time of the last write.
    private struct Kept {
        var mark: StreamMark?
        var writtenAt: UInt64 = 0
        var isUrgent = false
    }

    /// Error of a log that is not the one of the stream.
    struct Diverged: Error {
        var kind = ClusterRefusal.logAhead
        var words: String
    }

    init(
        log: LogSink, from mark: StreamMark, at end: StreamEnd = .unknown, tenure: Tenure,
        directory: any StorageDirectory, coverage: StreamCoverage,
        messages: StreamCoverage
    ) {
        self.log = log
        self.end = end
        self.tenure = tenure
        self.coverage = coverage
        self.messages = messages
        reader = StreamReader(from: mark)
        file = ReplicaFile(directory: directory)
    }

    /// Removes what an earlier reader of the same log began and did not finish: it is read again.
    func removeUnfinished() throws { try abandonUnfinished() }

    // MARK: Reading

    /// Reads the next message. Its records are applied by `apply`.
    func take(_ sequence: UInt64, _ message: [UInt8]) throws(StreamDamage) {
        if let batch = try reader.take(sequence, message) { waiting.append(batch) }
    }

    /// True if the log or the stream does not stand between two transactions, or the log lacks what was read.
    var hasUnfinished: Bool {
        !waiting.isEmpty || reader.isInsideBatch || log.isInsideTransaction || unfinished > 0
    }

    /// State of the log, for nodes that begin to read here.
    var state: ClusterState {
        assert(waiting.isEmpty, "the log has everything that was read")
        let place = log.appended
        // A tenure begins without the parts of an unfinished transaction.
        let offset = (place?.offset ?? 0) - (log.isInsideTransaction ? unfinished : 0)
        return ClusterState(
            isNew: log.isNew, system: log.systemIdentifier, epoch: place?.epoch ?? 0, offset: offset,
            position: log.position, lineage: log.lineage, messages: log.messages, memberships: coverage.followed,
            beginning: log.beginningSlot)
    }

    /// Appends a batch of this node's own behind everything that was read. Returns false if it was not stored, or this is
    /// unknown: then it is read from the stream, if it is there.
    func append(_ batch: borrowing BatchBuilder, by writer: any StreamWriter, tenure: UInt64) throws -> Bool {
        guard let chain = reader.mark.chain else { return false }
        do throws(NatsFailure) {
            try writer.append(batch, head(tenure), after: reader.mark.sequence, chain)
        } catch {
            return false
        }
        while true {
            switch writer.settle(within: 1_000_000_000) {
            case .waiting: continue
            case .lost: return false
            case .stored(let messages):
                for message in messages { try take(message.sequence, message.bytes) }
                try apply(now: Clock.monotonicNanoseconds())
                return true
            }
        }
    }

    /// Head of a message that this node appends now.
    func head(_ tenure: UInt64) -> StreamHead {
        let place = log.appended
        return StreamHead(
            isFirst: true, isLast: true, log: reader.mark.log, tenure: tenure, epoch: place?.epoch ?? 0,
            offset: place?.offset ?? 0, position: log.position)
    }

    // MARK: Applying

    /// Applies what was read. Throws `StorageStall` if the disk fails; the next call then continues where it stopped.
    func apply(now: UInt64) throws {
        while let batch = waiting.first {
            if offset == 0 { try check(batch.head) }
            var records = try RecordReader(batch.bytes.rawBytes, from: offset)
            while let record = try records.next() {
                try apply(record, batch, now)
                offset = records.offset
            }
            waiting.removeFirst()
            offset = 0
        }
    }

    /// Checks that the log has nothing that the stream lacks, when everything has been read.
    func checkEnd() throws {
        guard !hasUnfinished, !log.isNew, end != .unknown, let place = log.appended else { return }
        guard place == end.place else {
            throw Diverged(words: "the log stands at \(place), and the stream ends at \(end.place)")
        }
    }

    /// Checks that the batch begins where the log stands, or before.
    private func check(_ head: StreamHead) throws(Diverged) {
        end = StreamEnd(place: EventLogPosition(epoch: head.epoch, offset: head.offset), position: head.position)
        schemas.removeAll(keepingCapacity: schemas.count < 1_000)
        guard let place = log.appended, !log.isNew, head.epoch != 0 else { return }
        if place.epoch == head.epoch {
            guard head.offset <= place.offset, head.position <= log.position else {
                throw Diverged(
                    words: "the log stands at \(place), and the stream goes on at offset \(head.offset)")
            }
        } else if !log.has(epoch: head.epoch) {
            throw Diverged(
                kind: .otherStream, words: "the log does not have the epoch \(Hex.text(head.epoch)) of the stream")
        }
    }

    /// True if the log has what lies before this position in the epoch at hand.
    private func has(_ position: LSN) -> Bool {
        log.isNew || log.appended?.epoch != end.place.epoch || position <= log.position
    }

    /// True if the log has the transaction whose commit record begins at this position.
    private func hasCommit(at position: LSN) -> Bool {
        log.isNew || log.appended?.epoch != end.place.epoch || position < log.position
    }

    private func apply(_ record: ClusterRecord, _ batch: StreamBatch, _ now: UInt64) throws {
        switch record {
        case .schema(let range):
            let schema = Schema(try RelationCodec.decode(batch.bytes.rawBytes.extracting(range)))
            schemas[schema.fingerprint] = schema
        case .part(let part): try append(part, batch.bytes.rawBytes.extracting(part.payload))
        case .progress(let position):
            if !has(position) { try log.advance(to: position) }
            end.position = max(end.position, position)
        case .gap(let gap, let system, let next): try pass(gap, system, next)
        case .beginning(let slot): if log.isNew { try log.prepare(for: slot) }
        case .begin(let system, let position, let gap, let next):
            try begin(system, position, gap, next)
        case .lineage(let lineage): try follow(lineage)
        case .messages(let publication): try follow(messages: publication)
        case .memberships(let publication): try follow(memberships: publication)
        case .abandon: try abandonUnfinished()
        case .tenure(let node, let state):
            try abandonUnfinished()
            try adopt(state)
            tenure.began(batch.head.tenure, node, now: now)
        case .resigned:
            try abandonUnfinished()
            tenure.resigned(now: now)
        case .state(let state): try adopt(state)
        }
    }

    private func append(_ part: PartRecord, _ payload: RawSpan) throws {
        let info = try TransactionPart(payload).info
        defer {
            end.place.offset += UInt64(part.changeCount)
            unfinished = part.isLast ? 0 : unfinished + UInt64(part.changeCount)
            if part.isLast { end.position = info.endLSN }
        }
        // Only the last part of a transaction knows where it ends, so its commit decides.
        guard !hasCommit(at: info.commitLSN) else { return }
        let schemas = try part.schemas.map { print in
            guard let schema = self.schemas[print] else { throw StreamDamage.unreadable }
            return schema
        }
        try log.append(
            StorablePart(
                info: info, isLast: part.isLast, changeCount: part.changeCount, payload: payload, schemas: schemas,
                keys: part.keys, marks: part.marks))
    }

    private func abandonUnfinished() throws {
        if log.isInsideTransaction { try log.abandon() }
        end.place.offset -= min(unfinished, end.place.offset)
        unfinished = 0
    }

    private func begin(_ system: UInt64, _ position: LSN, _ gap: Gap?, _ next: UInt64) throws {
        defer { end = StreamEnd(place: EventLogPosition(epoch: next, offset: 0), position: gap?.to ?? position) }
        guard log.isNew else { return }
        if gap == nil { log.choose(epochs: next) } else { log.choose(epochs: next &+ 1, next) }
        try log.begin(systemIdentifier: system, at: position, after: gap)
        kept.isUrgent = true
    }

    private func pass(_ gap: Gap, _ system: UInt64, _ next: UInt64) throws {
        try abandonUnfinished()
        defer {
            end.place.epoch = next
            end.position = gap.to
        }
        guard !log.isNew, !log.has(epoch: next) else { return }
        if !isFeeding { try noting { () throws(SystemError) in try coverage.forget() } }
        log.choose(epochs: next)
        try log.recordGap(gap, systemIdentifier: system)
        kept.isUrgent = true
        guard !isFeeding else { return }
        Log.shared.error(
            "changes were lost before they reached the event log: the cluster recorded a gap and began a new epoch",
            [.reason(gap.reason.rawValue), .fromLSN(gap.from), .toLSN(gap.to)])
    }

    // MARK: What lies beside the entries

    private func adopt(_ state: ClusterState) throws {
        if log.isNew, !state.isNew {
            try log.begin(
                systemIdentifier: state.system, at: EventLogPosition(epoch: state.epoch, offset: state.offset),
                position: state.position)
            end = StreamEnd(
                place: EventLogPosition(epoch: state.epoch, offset: state.offset), position: state.position)
        }
        if let slot = state.beginning, log.isNew, log.beginningSlot != slot { try log.prepare(for: slot) }
        if let lineage = state.lineage { try follow(lineage) }
        try follow(messages: state.messages)
        try follow(memberships: state.memberships)
    }

    private func follow(_ lineage: Lineage) throws {
        guard log.lineage != lineage else { return }
        try log.follow(lineage)
        kept.isUrgent = true
    }

    private func follow(messages publication: FollowedPublication?) throws {
        if log.messages != publication {
            try log.keep(publication)
            kept.isUrgent = true
        }
        guard !isFeeding else { return }
        let followed = publication.map { FollowedMemberships(number: $0.number, since: $0.since) }
        if messages.followed != followed { try noting { () throws(SystemError) in try messages.adopt(followed) } }
    }

    private func follow(memberships publication: FollowedMemberships?) throws {
        guard !isFeeding else { return }
        try noting { () throws(SystemError) in try coverage.adopt(publication) }
        kept.isUrgent = true
    }

    private func noting(_ body: () throws(SystemError) -> Void) throws(StorageStall) {
        do throws(SystemError) { try body() } catch {
            throw StorageStall(operation: error.operation, path: error.subject, reason: error.reason, hint: "")
        }
    }

    // MARK: Keeping

    /// Interval at which the place in the stream is written beside the log.
    private static let keepInterval: UInt64 = 1_000_000_000

    /// Makes everything that was applied durable, and writes from time to time how far it goes.
    func flush(now: UInt64) throws {
        try log.flush()
        guard kept.isUrgent || now >= kept.writtenAt + Self.keepInterval else { return }
        try keep()
        kept.writtenAt = now
    }

    /// Writes the place in the stream up to which the log has everything.
    func keep() throws {
        guard !hasUnfinished, kept.mark != reader.mark else { return }
        try noting { () throws(SystemError) in try file.write(reader.mark, end) }
        kept.mark = reader.mark
        kept.isUrgent = false
    }
}
