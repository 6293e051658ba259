import Bytes

/// Event of a channel, stored in the log beside the changes. After an incident, these notes show which clients the hub
/// told of a change, and which it could not tell.
public struct LedgerNote: Sendable, Equatable {
    public enum Event: UInt8, Sendable, CaseIterable {
        /// The channel joined. It receives changes from `offset` on that match its bindings.
        case joined = 1
        /// The hub refused the join. `reason` is the text that the hub sent to the client.
        case refused = 2
        /// The channel has these claims from this note on.
        case renewed = 3
        /// The hub told the client that changes are missing or will be missing. `reason` is the text.
        case told = 4
        /// The channel ended. Changes before `offset` were sent; the client has certainly
        /// received those before `received`.
        case left = 5
        /// The hub started. A channel of an earlier run without an end in the ledger was cut off when that run ended.
        case began = 6
        /// The channel is still joined. Repeats its `joined` note, because retention may remove the original.
        case stands = 7
        /// One loop of the hub (`channel` is the loop's number) has sent all changes before `offset` to its channels.
        case reached = 8
        /// Deliveries of one loop of the hub, change by change, since `time`. They are in `deliveries`.
        case delivered = 9
        /// The loop's deliveries of the changes from `offset` to before `received` are not recorded, because the log
        /// had no room.
        case unrecorded = 10
        /// The hub answered an HTTP request with the changes from `offset` to before `received`. `reason` is their
        /// number.
        case answered = 11
        /// Earlier notes of a loop (`channel` is the loop's number) are missing, because the log had no room. `offset`
        /// is the number of missing notes about channels that the log knows. The state of these channels is unknown
        /// until a later note states it. `received` is the number of channels and requests without any note.
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

    /// Topic in the notes of refused HTTP requests that broadcast. Such a request receives no changes.
    public static let topicOfPosts = Array("http:broadcast".utf8)

    /// Bits of a socket's number that are the number of the loop serving the socket. A hub has fewer loops than this.
    public static let loopBits: UInt64 = 1023

    public var event: Event
    /// Time of the event in microseconds since 1970, UTC.
    public var time: Int64
    /// Number of the socket. No two sockets have the same number, even in different runs of the hub.
    public var session: UInt64
    /// Number that distinguishes the channels of one socket.
    public var channel: UInt32
    /// Position in the log. Its meaning depends on the event.
    public var offset: UInt64
    /// Second position or count, whose meaning depends on the event. 0 if unknown.
    public var received: UInt64
    public var topic: [UInt8]
    /// Bindings that the channel requested: a JSON array of the objects that clients send as `postgres_changes`.
    public var bindings: [UInt8]
    public var role: [UInt8]
    /// Subject of the claims. Empty if there is none.
    public var subject: [UInt8]
    /// Claims that the hub is configured to keep, as a JSON object.
    public var claims: [UInt8]
    /// Names of the claims that are not kept, separated by commas. Policies that use them cannot be evaluated
    /// afterwards.
    public var otherClaims: [UInt8]
    public var reason: [UInt8]
    /// True if every delivery to the channel is recorded. A change without a recorded delivery was then not sent.
    public var isRecorded = false
    /// True if the channel is private.
    public var isPrivate = false
    /// True if the channel is private and may not read the broadcasts of its topic.
    public var isDeaf = false
    /// Recorded deliveries, as a `DeliveryBlock`.
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

/// Stored form of the ledger, several notes in one entry:
///
/// ```
/// entry = version u8 · number of notes u32 · note*
/// note  = event u8 · time i64 · session u64 · channel u32 · offset u64 · received u64
///         · (length u32 · bytes) of topic, bindings, role, subject, claims, other claims, reason
///         · where the event's highest bit is set: flags u8 · length u32 · deliveries
/// ```
///
/// Entries of version 2 contain notes with that bit. An entry without any is of version 1,
/// which every hub version reads.
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

    /// Returns the keys by which the entry is found, or nil if the entry cannot be read.
    public static func keys(of entry: RawSpan) -> [UInt64]? {
        (try? decode(entry)).map { Array(Set($0.flatMap(\.keys))) }
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> [LedgerNote] {
        try decode(bytes) { _ in true }
    }

    /// Decodes the notes of the wanted events only. Recorded deliveries may be far larger than all other notes.
    public static func decode(
        _ bytes: RawSpan, _ wants: (LedgerNote.Event) -> Bool
    ) throws(ByteError) -> [LedgerNote] {
        var reader = ByteReader(bytes)
        let version = try reader.uint8()
        guard versions.contains(version) else {
            throw ByteError(expected: "a ledger of version 1 or 2", offset: 0)
        }
        let count = try reader.littleUInt32()
        // No capacity is reserved, because damaged bytes may contain a wrong count.
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
