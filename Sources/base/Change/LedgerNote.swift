import Bytes

/// What happened to somebody's channel: the log has it beside the changes, so that after an incident one can see who was told
/// of a change, and who could not be.
public struct LedgerNote: Sendable, Equatable {
    public enum Event: UInt8, Sendable, CaseIterable {
        /// What matches its bindings is for it, from `offset` on.
        case joined = 1
        /// It may not join; the reason is what its client was told.
        case refused = 2
        /// From here on it has these claims.
        case renewed = 3
        /// It was told that something is missing, or will be; the reason is that.
        case told = 4
        /// It is over. What lies before `offset` was sent; its client has certainly got what lies before `received`.
        case left = 5
        /// The hub began: whatever it had been serving before without saying that it ended was cut off with it.
        case began = 6
        /// It is there still: as at its join, for when the log lets go of that.
        case stands = 7
        /// All that one of the hub's loops (its number is in the place of the channel's) served then was sent what lies before
        /// `offset`.
        case reached = 8
        /// What one of the hub's loops sent, change by change, from then on: `deliveries` has it.
        case delivered = 9
        /// Of changes from `offset` on, and before `received`, what a loop sent is not in the log: there was no room.
        case unrecorded = 10
        /// Somebody asked over HTTP, and was told of what lies from `offset` on and before `received`; the reason says how much
        /// that was.
        case answered = 11
        /// Of what one of the hub's loops (its number is in the place of the channel's) noted before this, some is not in the
        /// log: there was no room. `offset` is how many notes of channels that the log knows of: what became of those is not
        /// known, unless it is said behind this. `received` is of how many channels and requests it has nothing at all.
        case missed = 12

        public var name: String {
            switch self {
            case .joined: "joined"
            case .refused: "refused"
            case .renewed: "renewed"
            case .told: "told"
            case .left: "left"
            case .began: "began"
            case .stands: "stands"
            case .reached: "reached"
            case .delivered: "delivered"
            case .unrecorded: "unrecorded"
            case .answered: "answered"
            case .missed: "missed"
            }
        }
    }

    /// The part of a socket's number that says which loop serves it; a hub has fewer loops.
    public static let loopBits: UInt64 = 1023

    public var event: Event
    /// Microseconds since 1970, UTC.
    public var time: Int64
    /// The socket. No two have the same number, also not of different runs of the hub.
    public var session: UInt64
    /// Tells the socket's channels from each other.
    public var channel: UInt32
    /// Where in the log; see the events.
    public var offset: UInt64
    /// 0 where that is not known.
    public var received: UInt64
    public var topic: [UInt8]
    /// What it asked for: a JSON array of what clients send as `postgres_changes`.
    public var bindings: [UInt8]
    public var role: [UInt8]
    /// Empty where there is none.
    public var subject: [UInt8]
    /// Those of its claims that the hub is to keep: a JSON object.
    public var claims: [UInt8]
    /// The names of those that are not kept, separated by commas: what policies make of them nobody can say later.
    public var otherClaims: [UInt8]
    public var reason: [UInt8]
    /// Each delivery to its channel is recorded by itself, so that what is not was not sent.
    public var isRecorded = false
    /// Its channel is a private one …
    public var isPrivate = false
    /// … that may not read what is said to its topic.
    public var isDeaf = false
    /// A `DeliveryBlock`, of what was delivered.
    public var deliveries: [UInt8] = []

    public init(
        _ event: Event, time: Int64, session: UInt64, channel: UInt32, offset: UInt64 = 0, received: UInt64 = 0
    ) {
        self.event = event
        self.time = time
        self.session = session
        self.channel = channel
        self.offset = offset
        self.received = received
        (topic, bindings, role, subject, claims, otherClaims, reason) = ([], [], [], [], [], [], [])
    }
}

/// The stored form of the ledger, several notes in one entry:
///
/// ```
/// entry = version u8 · number of notes u32 · note*
/// note  = event u8 · time i64 · session u64 · channel u32 · offset u64 · received u64
///         · (length u32 · bytes) of topic, bindings, role, subject, claims, other claims, reason
///         · where the event's highest bit is set: flags u8 · length u32 · deliveries
/// ```
///
/// Version 2 has notes with that bit; an entry without any is of version 1, which every version of the hub reads.
public enum LedgerCodec {
    private static let versions: ClosedRange<UInt8> = 1...2
    private static let fixedBytes = 37 + 7 * 4
    private static let longer: UInt8 = 0x80
    private static let longerBytes = 1 + 4
    private static let flagCount: UInt8 = 3

    static func byteCount(of note: LedgerNote) -> Int {
        let more = isLonger(note) ? longerBytes + note.deliveries.count : 0
        return texts(note).reduce(fixedBytes + more) { $0 + $1.count }
    }

    static func isStorable(_ note: LedgerNote) -> Bool {
        (texts(note) + [note.deliveries]).allSatisfy { $0.count <= Int(Int32.max) }
    }

    private static func isLonger(_ note: LedgerNote) -> Bool { flags(of: note) != 0 || !note.deliveries.isEmpty }

    private static func flags(of note: LedgerNote) -> UInt8 {
        (note.isRecorded ? 1 : 0) | (note.isPrivate ? 2 : 0) | (note.isDeaf ? 4 : 0)
    }

    private static func texts(_ note: LedgerNote) -> [[UInt8]] {
        [note.topic, note.bindings, note.role, note.subject, note.claims, note.otherClaims, note.reason]
    }

    public static func encode(_ notes: some Collection<LedgerNote>, to writer: inout ByteWriter) {
        writer.append(notes.contains(where: isLonger) ? versions.upperBound : versions.lowerBound)
        writer.append(little: UInt32(notes.count))
        for note in notes { append(note, to: &writer) }
    }

    private static func append(_ note: LedgerNote, to writer: inout ByteWriter) {
        precondition(isStorable(note), "a note's parts have a largest size")
        let hasMore = isLonger(note)
        writer.append(note.event.rawValue | (hasMore ? longer : 0))
        writer.append(little: UInt64(bitPattern: note.time))
        writer.append(little: note.session)
        writer.append(little: note.channel)
        writer.append(little: note.offset)
        writer.append(little: note.received)
        for text in texts(note) { append(text, to: &writer) }
        guard hasMore else { return }
        writer.append(flags(of: note))
        append(note.deliveries, to: &writer)
    }

    private static func append(_ text: [UInt8], to writer: inout ByteWriter) {
        writer.append(little: UInt32(text.count))
        writer.append(text)
    }

    /// By which an entry is found; nil where it cannot be read.
    public static func keys(of entry: RawSpan) -> [UInt64]? {
        (try? decode(entry)).map { Array(Set($0.flatMap(\.keys))) }
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> [LedgerNote] {
        try decode(bytes) { _ in true }
    }

    /// Only notes of events that are wanted: what was delivered may be far more than all else.
    public static func decode(
        _ bytes: RawSpan, _ wants: (LedgerNote.Event) -> Bool
    ) throws(ByteError) -> [LedgerNote] {
        var reader = ByteReader(bytes)
        let version = try reader.uint8()
        guard versions.contains(version) else {
            throw ByteError(expected: "a ledger of version 1 or 2", offset: 0)
        }
        let count = try reader.littleUInt32()
        // No room is made for what is not there.
        var notes: [LedgerNote] = []
        var longerNotes = 0
        for _ in 0..<count {
            let mark = try reader.uint8()
            guard let event = LedgerNote.Event(rawValue: mark & ~longer), mark < longer || version > 1 else {
                throw ByteError(expected: "an event of the ledger", offset: reader.offset - 1)
            }
            if mark >= longer { longerNotes += 1 }
            if wants(event) {
                notes.append(try note(event, hasMore: mark >= longer, &reader))
            } else {
                try skip(hasMore: mark >= longer, &reader)
            }
        }
        try reader.expectEnd()
        guard version == 1 || longerNotes > 0 else {
            throw ByteError(expected: "a note that version 1 has not got", offset: 0)
        }
        return notes
    }

    @_lifetime(reader: copy reader)
    private static func note(
        _ event: LedgerNote.Event, hasMore: Bool, _ reader: inout ByteReader
    ) throws(ByteError) -> LedgerNote {
        var note = LedgerNote(
            event, time: Int64(bitPattern: try reader.littleUInt64()), session: try reader.littleUInt64(),
            channel: try reader.littleUInt32(), offset: try reader.littleUInt64(), received: try reader.littleUInt64())
        note.topic = try text(&reader)
        note.bindings = try text(&reader)
        note.role = try text(&reader)
        note.subject = try text(&reader)
        note.claims = try text(&reader)
        note.otherClaims = try text(&reader)
        note.reason = try text(&reader)
        guard hasMore else { return note }
        let flags = try reader.uint8()
        guard flags < 1 << flagCount else {
            throw ByteError(expected: "flags of a note", offset: reader.offset - 1)
        }
        (note.isRecorded, note.isPrivate, note.isDeaf) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0)
        note.deliveries = try text(&reader)
        guard isLonger(note) else {
            throw ByteError(expected: "flags or deliveries", offset: reader.offset)
        }
        return note
    }

    @_lifetime(reader: copy reader)
    private static func skip(hasMore: Bool, _ reader: inout ByteReader) throws(ByteError) {
        try reader.skip(fixedBytes - 1 - 7 * 4)
        for _ in 0..<7 { try reader.skip(Int(reader.littleUInt32())) }
        guard hasMore else { return }
        try reader.skip(1)
        try reader.skip(Int(reader.littleUInt32()))
    }

    @_lifetime(reader: copy reader)
    private static func text(_ reader: inout ByteReader) throws(ByteError) -> [UInt8] {
        try reader.span(Int(reader.littleUInt32())).copied()
    }
}
