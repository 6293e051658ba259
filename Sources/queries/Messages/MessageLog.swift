import Bytes
import Change
import Diagnostics
import EventLog
import System

/// Reader of the messages in the event log. It indexes their places, follows the log's end, reads older segments when
/// necessary, and reads the messages themselves.
struct MessageLog {
    /// Broadcast that a search found.
    struct Found {
        /// Log offset of the change that inserted the message.
        let offset: UInt64
        let insertedAt: Int64
        /// Place of the row's last version.
        fileprivate let now: MessageIndex.Row
    }

    private let open: @Sendable () throws(SystemError) -> any StorageDirectory
    private var opened: (any StorageDirectory)?
    private var index: MessageIndex
    /// True if there are no older segments, or they cannot be read.
    private var isAtBeginning = true
    /// Position up to which the log was read.
    private(set) var end = EventLogPosition(epoch: 0, offset: 0)

    init(maximumPlaces: Int, open: @escaping @Sendable () throws(SystemError) -> any StorageDirectory) {
        self.open = open
        index = MessageIndex(maximum: maximumPlaces)
    }

    /// Returns the log's directory. It is opened on the thread that uses its descriptor.
    private mutating func files() throws(SystemError) -> any StorageDirectory {
        if let opened { return opened }
        let made = try open()
        opened = made
        return made
    }

    // MARK: - Following the end

    /// Reads the entries that were added since the last call.
    mutating func follow(_ logEnd: EventLogEnd) throws {
        let state = logEnd.state
        if index.segments.isEmpty { try begin(state) }
        while let (sequence, place) = index.newest {
            let isLast = sequence >= state.segment
            let isReadable =
                if !isLast || place.map({ $0 < state.segmentBytes }) ?? false {
                    try skipping(isLast) { try $0.readNewest(upTo: isLast ? state.segmentBytes : nil) } != nil
                } else { true }
            if isLast { break }
            guard isReadable, let next = try skipping(false, { try $0.open(sequence + 1, state) }) ?? nil else {
                // Retention has deleted the segment, or it cannot be read, so the index starts again.
                index.removeAll()
                try begin(state)
                continue
            }
            index.append(next)
        }
        end = state.position
    }

    /// Runs a read of a segment. Returns nil if the segment is damaged, so that others can still be read. Throws if it
    /// is the segment that is being written.
    private mutating func skipping<T>(_ isLast: Bool, _ body: (inout MessageLog) throws -> T) throws -> T? {
        do {
            return try body(&self)
        } catch {
            guard !isLast, case .segment = ReadingTrouble(error) else { throw error }
            Log.shared.error("cannot read the messages in a part of the event log", [.reason("\(error)")])
            return nil
        }
    }

    private mutating func begin(_ state: EventLogEnd.State) throws {
        guard let newest = try open(state.segment, state) else { throw EventLogError.missing(path: try files().path) }
        index.append(newest)
        isAtBeginning = false
    }

    /// Returns a segment from which no entries have been read yet; nil if it does not exist.
    private mutating func open(_ sequence: UInt64, _ state: EventLogEnd.State) throws -> MessageIndex.Segment? {
        let limit = sequence == state.segment ? state.segmentBytes : nil
        guard let reader = try SegmentReader(directory: files(), segment: sequence, limit: limit) else { return nil }
        var segment = MessageIndex.Segment(reader.header)
        // No message can be missing before the log's first segment.
        if sequence == 1 { segment.beginTime = .min }
        segment.next = reader.place
        return segment
    }

    private mutating func readNewest(upTo limit: UInt64?) throws {
        let files = try files()
        try index.withNewest { try Self.read(&$0, files, upTo: limit) }
    }

    /// Reads the segment from the place where reading stopped. After an error, reading continues there, so nothing is
    /// lost.
    private static func read(
        _ segment: inout MessageIndex.Segment, _ files: any StorageDirectory, upTo limit: UInt64?
    ) throws {
        guard let next = segment.next,
            var reader = try SegmentReader(directory: files, segment: segment.sequence, limit: limit)
        else { return }
        if limit == nil, !reader.mayContain(MessageTable.key) {
            segment.next = nil
            return
        }
        reader.move(to: next.position, offset: next.offset)
        while try reader.next() {
            switch reader.entry.kind {
            case .relation:
                segment.layouts.learn(
                    RelationCodec.fingerprint(of: reader.payload), try RelationCodec.decode(reader.payload))
            case .transaction where !segment.layouts.isEmpty:
                try note(reader.payload, reader.entry, at: start(reader), &segment)
            default: break
            }
            segment.next = reader.place
        }
        if limit == nil { segment.next = nil }
    }

    /// Returns the byte position of the current entry in its segment.
    private static func start(_ reader: borrowing SegmentReader) -> UInt64 {
        reader.place.position - UInt64(reader.entry.byteCount)
    }

    private static func note(
        _ payload: RawSpan, _ entry: EntryHeader, at position: UInt64, _ segment: inout MessageIndex.Segment
    ) throws(ByteError) {
        var part = try TransactionPart(payload)
        var index: UInt32 = 0
        while let change = try part.next() {
            defer { index += 1 }
            guard let layout = segment.layouts.layout(of: change.relation) else { continue }
            let offset = entry.offset + UInt64(index)
            switch change.operation {
            case .insert:
                guard case .message(let message) = try DatabaseMessage.read(change, layout) else { continue }
                segment.add(MessageIndex.Noted(message), position: position, offset: offset, index: index)
            case .update, .delete:
                let row = MessageIndex.Row(
                    segment: segment.sequence, position: position, offset: offset, index: index)
                try MessageLog.revise(change, layout, row, &segment.revisions)
            case .truncate: segment.truncate(at: offset, committed: part.info.commitTime)
            case .message: break
            }
        }
    }

    /// Records an update or delete of a message.
    private static func revise(
        _ change: borrowing Change, _ layout: MessageLayout, _ row: MessageIndex.Row,
        _ revisions: inout [MessageIndex.Revision]
    ) throws(ByteError) {
        var former: UInt64?
        if let old = change.old {
            let places = try MessagePlaces(old.bytes, layout)
            if places.has(.id) { former = MessageIndex.id(old.bytes.extracting(places.id)) }
        }
        func ends(_ id: UInt64) {
            revisions.append(MessageIndex.Revision(id: id, offset: row.offset, change: .deleted))
        }
        guard let new = change.new else { return former.map(ends) ?? () }
        let places = try MessagePlaces(new.bytes, layout)
        guard places.has(.id) else { return former.map(ends) ?? () }
        let id = MessageIndex.id(new.bytes.extracting(places.id))
        if let former, former != id { ends(former) }
        let now: MessageIndex.Revision.Change
        switch try DatabaseMessage.read(new.bytes, layout) {
        case .message(let message):
            let topic = MessageIndex.topic(message.topic, isPrivate: message.isPrivate)
            now = message.isBroadcast ? .rewritten(row, topic: topic) : .deleted
        case .flawed(.noPayload)
        where places.isUnchanged && new.bytes.extracting(places.extension).equals("broadcast"):
            let isPrivate = new.bytes.extracting(places.isPrivate)
            now = .kept(
                topic: MessageIndex.topic(new.bytes.extracting(places.topic), isPrivate: isPrivate.equals("t")))
        case .flawed, .noInsert: now = .deleted
        }
        revisions.append(MessageIndex.Revision(id: id, offset: row.offset, change: now))
    }

    // MARK: - Extending back

    /// True if there are older segments to read, and room for their messages in the index.
    var canReachBack: Bool { !isAtBeginning && !index.isFull }

    /// Offset from which every message is in the index.
    var beginOffset: UInt64 { index.segments.first?.firstOffset ?? .max }

    /// Insert time (microseconds since 1970) from which the index has every message that the log has.
    var beginTime: Int64 {
        guard let oldest = index.segments.first else { return .max }
        if oldest.beginTime == .min { return .min }
        return oldest.beginTime + Limits.clockTolerance.components.seconds * 1_000_000
    }

    /// Reads the segment before the oldest one of the index.
    mutating func reachBack() throws {
        guard canReachBack, let oldest = index.segments.first else { return }
        guard oldest.sequence > 1, let segment = try skipping(false, { try $0.whole(oldest.sequence - 1) }) ?? nil
        else {
            isAtBeginning = true
            return
        }
        index.prepend(segment)
    }

    /// Reads a complete segment to its end; nil if it does not exist.
    private mutating func whole(_ sequence: UInt64) throws -> MessageIndex.Segment? {
        let files = try files()
        guard let reader = try SegmentReader(directory: files, segment: sequence, limit: nil) else { return nil }
        var segment = MessageIndex.Segment(reader.header)
        if segment.sequence == 1 { segment.beginTime = .min }
        segment.next = reader.place
        try Self.read(&segment, files, upTo: nil)
        return segment
    }

    // MARK: - Searching

    /// Returns the newest broadcasts of a topic since an insert time (microseconds since 1970), in the order of the
    /// log.
    func newest(_ query: ReplayQuery, since: Int64) -> [Found] {
        let topic = Self.topic(query)
        let before = Clock.unixMicroseconds() + Limits.replayHorizon.components.seconds * 1_000_000
        var found: [Found] = []
        for segment in index.segments.reversed() where segment.latest >= since {
            segment.visit(topic) { place in
                if place.isBroadcast, place.insertedAt >= since, place.insertedAt < before,
                    let one = self.found(place, segment.sequence, topic)
                {
                    found.append(one)
                }
                // The list is reduced at about twice the limit, so that each message is sorted about once.
                if found.count >= 2 * query.limit + 1024 { found = Self.newest(found, query.limit) }
                return true
            }
        }
        return Self.newest(found, query.limit).sorted { $0.offset < $1.offset }
    }

    private static func newest(_ found: [Found], _ limit: Int) -> [Found] {
        guard found.count > limit else { return found }
        let sorted = found.sorted {
            ($0.insertedAt, $0.offset) > ($1.insertedAt, $1.offset)
        }
        assert(zip(sorted, sorted.dropFirst()).allSatisfy { $0.insertedAt >= $1.insertedAt }, "the newest stand first")
        return Array(sorted.prefix(limit))
    }

    /// Returns the message with its last version. Nil if it was deleted or moved to another topic.
    private func found(_ place: MessageIndex.Place, _ segment: UInt64, _ topic: UInt64) -> Found? {
        let inserted = MessageIndex.Row(
            segment: segment, position: place.position, offset: place.offset, index: place.index)
        let now: MessageIndex.Row
        switch index.revision(of: place)?.change {
        case .deleted: return nil
        case .kept(let other) where other != topic: return nil
        case .rewritten(_, let other) where other != topic: return nil
        case nil, .kept: now = inserted
        case .rewritten(let row, _): now = row
        }
        return Found(offset: place.offset, insertedAt: place.insertedAt, now: now)
    }

    private static func topic(_ query: ReplayQuery) -> UInt64 {
        MessageIndex.topic(query.topic.rawBytes, isPrivate: query.isPrivate)
    }

    // MARK: - Revisions

    /// Returns how messages that were inserted at log offset `offset` or later were changed afterwards, up to the end
    /// of what was read.
    mutating func revisions(since offset: UInt64) throws -> MessageRevisions {
        var changed: [UInt64: MessageRevisions.Fate] = [:]
        var rewritten: [Found] = []
        index.visitRevised(since: offset) { place, segment, topic in
            let found = self.found(place, segment, topic)
            // The fate is unknown until the new version is read below.
            changed[place.offset] = found == nil ? .deleted : .unknown
            if let found { rewritten.append(found) }
        }
        for message in try read(rewritten.sorted { $0.offset < $1.offset }, nil).messages {
            if let offset = message.offset { changed[offset] = .rewritten(message) }
        }
        let end = max(offset, end.offset)
        return MessageRevisions(of: offset..<end, knownFrom: min(max(offset, beginOffset), end), changed)
    }

    // MARK: - Reading

    /// Reads the messages at these places, which must be in the order of the log. If there is a query, omits messages
    /// of other topics. `isWhole` is false if retention has deleted some messages or if all together are too large.
    /// Only the newest are then returned.
    mutating func read(_ places: [Found], _ query: ReplayQuery?) throws -> (messages: [ArchivedMessage], isWhole: Bool)
    {
        var messages: [ArchivedMessage] = []
        var bytes = 0
        var left = places[...]
        while let last = left.last {
            let files = try files()
            guard var reader = try SegmentReader(directory: files, segment: last.now.segment, limit: nil) else {
                index.forget(upTo: last.now.segment)
                return (messages.reversed(), false)
            }
            let layouts = index.segments.first { $0.sequence == last.now.segment }?.layouts ?? MessageLayouts()
            while let found = left.last, found.now.segment == last.now.segment {
                left.removeLast()
                let read: ArchivedMessage?
                do {
                    read = try Self.message(&reader, found, layouts, query)
                } catch  where !isTransient(error) {
                    // The newer messages are returned, as if retention had deleted this one.
                    Log.shared.error("cannot read a message in the event log", [.reason("\(error)")])
                    index.forget(upTo: found.now.segment)
                    return (messages.reversed(), false)
                }
                guard let message = read else { continue }
                assert(messages.last.map { ($0.offset ?? .max) > found.offset } ?? true, "the newest are read first")
                bytes += message.byteCount
                guard bytes <= Limits.maximumReplayedBytes else { return (messages.reversed(), false) }
                messages.append(message)
            }
        }
        return (messages.reversed(), true)
    }

    /// Reads a message. Nil if it is not of the topic that the query asks for: it was moved, or the hashes of two
    /// topics are equal.
    private static func message(
        _ reader: inout SegmentReader, _ found: Found, _ layouts: MessageLayouts, _ query: ReplayQuery?
    ) throws -> ArchivedMessage? {
        let row = found.now
        reader.move(to: row.position, offset: row.offset - UInt64(row.index))
        guard try reader.next() else { return nil }
        var part = try TransactionPart(reader.payload)
        for _ in 0..<row.index { _ = try part.next() }
        guard let change = try part.next(), let new = change.new, let layout = layouts.layout(of: change.relation),
            case .message(let message) = try DatabaseMessage.read(new.bytes, layout)
        else { return nil }
        if let query, message.isPrivate != query.isPrivate || message.topic.copied() != query.topic { return nil }
        return ArchivedMessage(message, offset: found.offset)
    }
}

private func isTransient(_ error: any Error) -> Bool { ReadingTrouble(error) == .transient }

extension MessageIndex.Noted {
    fileprivate init(_ message: borrowing DatabaseMessage) {
        topic = MessageIndex.topic(message.topic, isPrivate: message.isPrivate)
        id = MessageIndex.id(message.id)
        insertedAt = message.insertedAt
        isBroadcast = message.isBroadcast
    }
}

extension ArchivedMessage {
    public init(_ message: borrowing DatabaseMessage, offset: UInt64?) {
        let payload: Payload
        if message.isBinary {
            var bytes = ByteWriter(capacity: message.payloadByteCount)
            message.appendBinary(to: &bytes)
            payload = .binary(bytes.copied())
        } else {
            payload = .json(message.json.copied())
        }
        self.init(
            id: message.id.copied(), event: message.event.copied(), payload: payload, insertedAt: message.insertedAt,
            offset: offset)
    }
}
