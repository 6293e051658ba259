import Bytes
import Change
import EventLog

/// A note of the ledger with its place in the log.
public struct RecordedNote: Sendable, Equatable {
    /// Note in masked form.
    public var note: LedgerNote
    public var epoch: UInt64
    /// Offset of the next change after the note.
    public var place: UInt64
    /// Unmasked note; nil if nothing of it is masked.
    private var sealed: LedgerNote?

    init(note: LedgerNote, epoch: UInt64, place: UInt64, masking: Masking = .nothing) {
        self.note = note.masked(by: masking)
        self.epoch = epoch
        self.place = place
        sealed = self.note == note ? nil : note
    }

    /// Unmasked note. Only code that imports `@_spi(Judging)` sees it, and must show nothing of it.
    @_spi(Judging) public var whole: LedgerNote { sealed ?? note }

    /// Bindings that the client asked for.
    public var bindings: [ListedBinding] { ListedBinding.all(in: note.bindings, of: whole.bindings) }
}

/// Query for notes: all of a window, or those of one user or socket. The result always includes notes about missing
/// notes.
public struct LedgerQuery: Sendable {
    public var from: HistoryBound?
    public var to: HistoryBound?
    public var subject: String?
    public var session: UInt64?

    public init(from: HistoryBound? = nil, to: HistoryBound? = nil) {
        self.from = from
        self.to = to
    }

    fileprivate var keys: [UInt64] {
        if let session { return [RowKey.ledger(session: session), RowKey.missed] }
        return subject.map { [RowKey.ledger(subject: Array($0.utf8)), RowKey.missed] } ?? [RowKey.ledger]
    }

    fileprivate func wants(_ note: LedgerNote) -> Bool {
        if note.event == .missed { return true }
        if let session, note.session != session { return false }
        return subject.map { Array($0.utf8) == note.subject } ?? true
    }
}

extension HistoryLog {
    /// Calls `visit` for each note, in the order of the log. Skips stretches of the log without such notes.
    public func ledger(_ query: LedgerQuery, _ visit: (RecordedNote) throws -> Void) throws {
        let window = try window(from: query.from, to: query.to)
        var reader = try EventLogReader(directory: directory, from: window.start, matchingAnyOf: query.keys)
        while try reader.next() {
            let entry = reader.entry
            // A note directly before the window's end belongs to the window.
            if entry.offset > window.endOffset || entry.segment > window.lastSegment { return }
            guard entry.kind == .ledger, entry.offset >= window.firstOffset else { continue }
            for note in try notes(of: reader) where query.wants(note) {
                guard note.time >= window.firstTime, note.time < window.endTime else { continue }
                try visit(
                    RecordedNote(note: note, epoch: entry.epoch, place: entry.offset, masking: masking))
            }
        }
    }

    private func notes(of reader: borrowing EventLogReader) throws(UnreadableEntry) -> [LedgerNote] {
        do {
            return try LedgerCodec.decode(reader.payload) { $0 != .delivered }
        } catch {
            throw UnreadableEntry(
                offset: reader.entry.offset, segment: reader.entry.segment, reason: error.description)
        }
    }
}

/// A channel from its join to its end, as the ledger records it.
public struct Attendance: Sendable {
    /// Record of a channel's end.
    public enum End: Sendable, Equatable {
        /// No end is recorded. The channel may still be connected.
        case none
        /// The channel left. The hub had sent it every change before `before`. The client had acknowledged every change
        /// before `received`.
        case left(before: UInt64, received: UInt64, time: Int64, reason: String)
        /// The hub stopped without recording an end, and started again at the place `behind`. Before it stopped, it had
        /// sent every change before `sentBefore`.
        case cut(sentBefore: UInt64, behind: UInt64, time: Int64)
        /// Notes are missing for lack of room, perhaps one about the channel's end. The hub had sent every change
        /// before `sentBefore`; nothing is known about later changes. `behind` is the place of the gap in the notes.
        case missed(sentBefore: UInt64, behind: UInt64, time: Int64)
    }

    /// Note of the join, or the oldest note that the log has of the channel.
    public let joined: RecordedNote
    public var end = End.none
    /// Notes of renewed tokens, each with the claims that the channel has from then on.
    public var renewals: [RecordedNote] = []
    /// Notes of losses that the hub reported to the channel.
    public var losses: [RecordedNote] = []
    /// Place in the log by which the client had certainly reached the end of its catch-up; nil if no note records that.
    public internal(set) var caughtUpBy: UInt64?
    /// Place in the log by which the client had certainly passed the change to which the `AttendanceBook` is limited;
    /// nil if no note records that.
    public internal(set) var passedBy: UInt64?
    /// Place of the note of the channel's end, or of the hub's next start; nil if there is none.
    var endPlace: UInt64?

    init(_ joined: RecordedNote) { self.joined = joined }

    public var session: UInt64 { joined.note.session }
    /// True for an HTTP request for changes, which the hub has answered.
    public var isAnswer: Bool { joined.note.event == .answered }
    public var channel: UInt32 { joined.note.channel }
    var loop: UInt64 { session & LedgerNote.loopBits }
    /// Offset of the first change that the channel should receive.
    public var since: UInt64 { joined.note.offset }

    /// Returns the note with the claims that the channel had at a change.
    public func holder(at offset: UInt64) -> RecordedNote {
        renewals.last { $0.note.offset <= offset } ?? joined
    }

    /// Returns the place in the log by which the client had certainly passed a change that it received during its
    /// catch-up. The rights at any time until that place may have decided if the hub sent the change. Returns `.max` if
    /// no note records the place, and nil if the client was connected at the change.
    public func catchUpEnd(to offset: UInt64) -> UInt64? {
        guard since < joined.place, joined.note.event != .stands, !isAnswer else { return nil }
        if let caughtUpBy, caughtUpBy <= offset { return nil }
        return passedBy ?? .max
    }

    /// Returns the notes with the claims that the client may have had when it reached a change while it caught up.
    public func holders(at offset: UInt64, through place: UInt64) -> [RecordedNote] {
        let first = holder(at: offset)
        return [first] + renewals.filter { $0.place > first.place && $0.place <= place && $0.note.offset > offset }
    }

    /// Statement of the ledger about a change that the channel's bindings match and its claims allow.
    public enum Reach: Sendable, Equatable {
        /// The channel joined after the change.
        case notYet
        /// The hub sent the change while the client was connected.
        case sent(isReceived: Bool)
        /// The hub sent the change after the client had reconnected and resumed.
        case sentLater(isReceived: Bool)
        /// The channel ended before it reached the change.
        case endedBefore
        /// The hub stopped, or notes are missing. No note records if the channel reached the change.
        case unknown
    }

    /// Returns if, and when, the channel reached the change.
    ///
    /// - Parameter committed: commit time of the change.
    public func reach(of offset: UInt64, committed: Int64) -> Reach {
        guard since <= offset else { return .notYet }
        // For a channel noted as `stands`, the log no longer has the join, which was before everything in the log.
        // Clocks may differ: a channel that was noted before the change did not join later.
        let isLater = joined.note.event != .stands && joined.note.time > committed && joined.place > offset
        switch end {
        case .none: return isLater ? .sentLater(isReceived: false) : .sent(isReceived: false)
        case .left(let before, let received, _, _):
            guard offset < before else { return .endedBefore }
            return isLater ? .sentLater(isReceived: offset < received) : .sent(isReceived: offset < received)
        case .cut(let sentBefore, let behind, _):
            guard offset >= sentBefore else {
                return isLater ? .sentLater(isReceived: false) : .sent(isReceived: false)
            }
            return offset < behind ? .unknown : .endedBefore
        case .missed(let sentBefore, _, _):
            guard offset < sentBefore else { return .unknown }
            return isLater ? .sentLater(isReceived: false) : .sent(isReceived: false)
        }
    }
}

/// Attendance of all channels in the ledger, or of those that one change concerns.
public struct AttendanceBook: Sendable {
    /// Longest time in microseconds from a channel's end to a change at which the book still lists the channel.
    public static let goneMicroseconds: Int64 = 3_600_000_000

    /// Change that limits the book: only channels that the change concerns are kept.
    private struct Concern {
        var offset: UInt64
        var committed: Int64
        var subject: [UInt8]?
    }

    private struct Key: Hashable {
        var session: UInt64
        var channel: UInt32
    }

    private struct RefusedKey: Hashable {
        var subject: [UInt8]
        var topic: [UInt8]
    }

    private var known: [Int: Attendance] = [:]
    private var next = 0
    private var open: [Key: Int] = [:]
    private let concern: Concern?
    /// Newest note of each loop about the offset that it had reached for all its channels.
    private var reached: [UInt64: LedgerNote] = [:]
    /// All these notes, by loop. Empty for a book that is limited to a change.
    private var passages: [UInt64: [(offset: UInt64, place: UInt64, time: Int64)]] = [:]
    /// Ranges of changes whose deliveries are not all recorded, by loop.
    private var unrecorded: [UInt64: [Range<UInt64>]] = [:]
    /// Place of the first note that is written only by a ledger with joins.
    public private(set) var keptFrom: UInt64?
    /// Last refusal of each user who has not joined since, for a book that is limited to a change.
    private var refused: [RefusedKey: RecordedNote] = [:]
    /// Number of short-lived channels, and of requests, that the log lacks because there was no room for their notes.
    public private(set) var strangers: UInt64 = 0

    public init(_ log: HistoryLog) throws {
        self.init()
        try log.ledger(LedgerQuery()) { add($0) }
    }

    /// Lists the channels that a change may concern: they had joined, and had not ended long before. With `subject`,
    /// lists all channels of that user.
    public init(_ log: HistoryLog, at change: RecordedChange, of subject: String? = nil) throws {
        concern = Concern(
            offset: change.offset, committed: change.time ?? .max, subject: subject.map { Array($0.utf8) })
        try log.ledger(LedgerQuery()) { add($0) }
        guard let concern, let subject = concern.subject else { return }
        known = known.filter { $0.value.holder(at: concern.offset).whole.subject == subject }
    }

    /// Creates a book without notes; the caller adds them.
    public init() { concern = nil }

    /// Adds a note.
    ///
    /// - Parameter place: offset of the next change after the note.
    public mutating func add(_ note: LedgerNote, at place: UInt64) {
        add(RecordedNote(note: note, epoch: 0, place: place))
    }

    /// True if joins were being recorded at the offset. A client that is not in the book then was not connected.
    public func isKept(at offset: UInt64) -> Bool { keptFrom.map { $0 <= offset } ?? false }

    /// Last refusal of each user and topic before the change of the book, if the user had not joined since. The order
    /// is that of the log. The topic is empty if the hub refused the socket.
    public var refusals: [RecordedNote] {
        refused.values.sorted { ($0.place, $0.note.time, $0.note.session) < ($1.place, $1.note.time, $1.note.session) }
    }

    /// Records a refusal before the change. Leaves out users without a name, who cannot be told apart, and refusals
    /// long before the change, which say nothing about it.
    private mutating func refuse(_ recorded: RecordedNote) {
        guard let concern, recorded.place <= concern.offset, !recorded.note.subject.isEmpty else { return }
        guard concern.subject.map({ $0 == recorded.whole.subject }) ?? true,
            concern.committed == .max || recorded.note.time > concern.committed - Self.goneMicroseconds
        else { return }
        refused[RefusedKey(subject: recorded.whole.subject, topic: recorded.note.topic)] = recorded
    }

    /// All channels, in the order of their joins.
    public var all: [Attendance] { known.keys.sorted().compactMap { known[$0] } }

    /// True if the ledger records that the channel's loop had sent the change at this offset to all its channels.
    func hasReached(_ offset: UInt64, _ attendance: Attendance) -> Bool {
        guard let reached = reached[attendance.loop], reached.time > attendance.joined.note.time else { return false }
        return offset < reached.offset
    }

    /// True if recorded deliveries of the change to the socket may be missing.
    public func lacksDeliveries(of offset: UInt64, to session: UInt64) -> Bool {
        unrecorded[session & LedgerNote.loopBits]?.contains { $0.contains(offset) } == true
    }

    /// Drops an ended channel that did not reach the change, if the channel ended long before the change.
    private mutating func forget(_ place: Int, goneAt time: Int64) {
        guard let concern, let attendance = known[place] else { return }
        let isGone = attendance.reach(of: concern.offset, committed: concern.committed) == .endedBefore
        let isLongAgo =
            concern.subject == nil && concern.committed != .max
            && time < concern.committed - Self.goneMicroseconds
        if isGone && isLongAgo { known[place] = nil }
    }

    private mutating func cut(_ place: Int, _ began: RecordedNote) {
        let sent = sentBefore(known[place])
        known[place]?.end = .cut(sentBefore: sent, behind: began.place, time: began.note.time)
        forget(place, goneAt: began.note.time)
    }

    /// Returns the offset before which every change was certainly sent to the channel.
    private func sentBefore(_ attendance: Attendance?) -> UInt64 {
        guard let attendance else { return 0 }
        if case .missed(let sentBefore, _, _) = attendance.end { return sentBefore }
        guard let reached = reached[attendance.loop], reached.time > attendance.joined.note.time else { return 0 }
        return reached.offset
    }

    /// Records that the channel's loop has sent everything before an offset to all its channels.
    private mutating func come(_ place: Int, _ reached: RecordedNote) {
        guard let attendance = known[place], attendance.loop == UInt64(reached.note.channel),
            reached.note.time > attendance.joined.note.time
        else { return }
        if attendance.caughtUpBy == nil, reached.note.offset >= attendance.joined.place {
            known[place]?.caughtUpBy = reached.place
        }
        if let concern, reached.note.offset > concern.offset { pass(place, reached) }
    }

    private mutating func pass(_ place: Int, _ note: RecordedNote) {
        if known[place]?.passedBy == nil { known[place]?.passedBy = note.place }
    }

    /// Returns a place in the log by which a channel had certainly reached a change during its catch-up, for a book of
    /// all changes; nil if its client was connected at the change.
    public func catchUpEnd(of attendance: Attendance, to offset: UInt64) -> UInt64? {
        assert(concern == nil, "a book that is limited to a change knows when that change was passed")
        guard attendance.catchUpEnd(to: offset) != nil else { return nil }
        let passage = passages[attendance.loop]?.first {
            $0.offset > offset && $0.time > attendance.joined.note.time
        }
        return min(passage?.place ?? .max, attendance.endPlace ?? .max)
    }

    /// Marks the channel's end as unknown: notes of its loop are missing, perhaps notes about the channel.
    private mutating func doubt(_ place: Int, _ missed: RecordedNote) {
        let sent = sentBefore(known[place])
        known[place]?.end = .missed(sentBefore: sent, behind: missed.place, time: missed.note.time)
    }

    /// Removes the mark that the end is unknown, because a later note shows that the channel is still connected.
    private mutating func confirm(_ place: Int, _ stands: RecordedNote) {
        guard let attendance = known[place], case .missed(_, let behind, _) = attendance.end else { return }
        known[place]?.end = .none
        let holder = attendance.renewals.last ?? attendance.joined
        guard
            holder.whole.claims != stands.whole.claims || holder.note.subject != stands.note.subject
                || holder.note.role != stands.note.role
        else { return }
        // The note about the renewed token is among the missing ones.
        var renewed = stands
        renewed.note.offset = behind
        known[place]?.renewals.append(renewed)
    }

    mutating func add(_ recorded: RecordedNote) {
        let note = recorded.note
        let key = Key(session: note.session, channel: note.channel)
        if keptFrom == nil, [.joined, .stands, .left, .reached].contains(note.event) { keptFrom = recorded.place }
        switch note.event {
        case .stands where open[key] != nil: if let place = open[key] { confirm(place, recorded) }
        case .joined, .stands:
            if let concern, note.offset > concern.offset { return }
            for topic in [note.topic, []] {
                refused[RefusedKey(subject: recorded.whole.subject, topic: topic)] = nil
            }
            open[key] = next
            known[next] = Attendance(recorded)
            next += 1
        case .answered:
            if let concern, !(note.offset..<max(note.offset, note.received)).contains(concern.offset) { return }
            var answer = Attendance(recorded)
            answer.end = .left(
                before: note.received, received: 0, time: note.time,
                reason: String(decoding: note.reason, as: UTF8.self))
            known[next] = answer
            next += 1
        case .refused: refuse(recorded)
        case .renewed: if let place = open[key] { known[place]?.renewals.append(recorded) }
        case .told: if let place = open[key] { known[place]?.losses.append(recorded) }
        case .left:
            guard let place = open.removeValue(forKey: key) else { return }
            pass(place, recorded)
            known[place]?.endPlace = recorded.place
            known[place]?.end = .left(
                before: note.offset, received: note.received, time: note.time,
                reason: String(decoding: note.reason, as: UTF8.self))
            forget(place, goneAt: note.time)
        case .began:
            for place in open.values {
                pass(place, recorded)
                known[place]?.endPlace = recorded.place
                cut(place, recorded)
            }
            open = [:]
            reached = [:]
        case .reached:
            reached[UInt64(note.channel)] = note
            if concern == nil {
                passages[UInt64(note.channel), default: []].append((note.offset, recorded.place, note.time))
            }
            for place in open.values { come(place, recorded) }
        case .missed:
            if note.offset > 0 {
                for place in open.values where known[place]?.loop == UInt64(note.channel) { doubt(place, recorded) }
            }
            // Channels that were noted before the change are known.
            if recorded.place >= concern?.offset ?? 0 { strangers += note.received }
        case .unrecorded:
            if note.offset < note.received {
                unrecorded[UInt64(note.channel), default: []].append(note.offset..<note.received)
            }
        case .delivered: break
        }
    }
}
