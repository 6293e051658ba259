import Bytes
import Change
import Diagnostics
import System

/// Message that a transaction inserted into `realtime.messages`, read in place from its row.
public struct DatabaseMessage: ~Escapable {
    private let row: RawSpan
    private let places: MessagePlaces
    /// True if the message is for private channels of its topic, false if it is for public ones.
    public let isPrivate: Bool
    /// Insert time in microseconds since 1970. The column has no time zone and is read as UTC.
    public let insertedAt: Int64

    @_lifetime(copy row)
    init(_ row: RawSpan, _ places: MessagePlaces, isPrivate: Bool, insertedAt: Int64) {
        self.row = row
        self.places = places
        self.isPrivate = isPrivate
        self.insertedAt = insertedAt
    }

    /// UUID of the row, as text.
    public var id: RawSpan {
        @_lifetime(copy self)
        get { row.extracting(places.id) }
    }

    /// Topic without the prefix `realtime:`.
    public var topic: RawSpan {
        @_lifetime(copy self)
        get { row.extracting(places.topic) }
    }

    public var event: RawSpan {
        @_lifetime(copy self)
        get { row.extracting(places.event) }
    }

    /// True if the payload consists of bytes, false if it is JSON.
    public var isBinary: Bool { !places.has(.payload) }

    /// JSON payload as PostgreSQL writes it; empty if the payload is binary.
    public var json: RawSpan {
        @_lifetime(copy self)
        get { row.extracting(places.payload) }
    }

    /// Size of the payload in bytes.
    public var payloadByteCount: Int { isBinary ? (places.binaryPayload.count - 2) / 2 : places.payload.count }

    /// Appends the bytes of the binary payload to `writer`.
    public func appendBinary(to writer: inout ByteWriter) {
        let text = row.extracting(places.binaryPayload)
        let isRead = BinaryText.append(text, to: &writer)
        precondition(isRead, "a message's bytes were looked at when it was read")
    }

    /// True if the row is a broadcast. Only broadcasts are replayed to clients that join later.
    public var isBroadcast: Bool {
        let kind = row.extracting(places.extension)
        return kind.equals("broadcast")
    }
}

extension DatabaseMessage {
    /// Reason why a row is not a valid message.
    public enum Flaw: String, Sendable, Hashable {
        case noID = "it has no id"
        case noTopic = "it has no topic"
        case noEvent = "it has no event"
        case noPayload = "it has no payload"
        case noNamespace = "it does not say whether it is private"
        case noTime = "its inserted_at is no time"
        case notBytes = "its binary_payload is not in hexadecimal form"
    }

    /// Meaning that a change of the messages table has for a topic's subscribers.
    public enum Reading: ~Escapable {
        case message(DatabaseMessage)
        case flawed(Flaw)
        /// The change is not an insert. Subscribers receive nothing; only later replays need it (`MessageLog`).
        case noInsert
    }

    /// Reads a change whose row has this layout. Throws if the row is malformed.
    @_lifetime(copy change)
    public static func read(_ change: borrowing Change, _ layout: MessageLayout) throws(ByteError) -> Reading {
        guard change.operation == .insert, !change.isForgotten, let row = change.new else { return .noInsert }
        return try read(row.bytes, layout)
    }

    @_lifetime(copy row)
    static func read(_ row: RawSpan, _ layout: MessageLayout) throws(ByteError) -> Reading {
        let places = try MessagePlaces(row, layout)
        guard places.has(.id) else { return .flawed(.noID) }
        guard places.has(.topic) else { return .flawed(.noTopic) }
        guard places.has(.event) else { return .flawed(.noEvent) }
        guard places.has(.payload) || places.has(.binaryPayload) else { return .flawed(.noPayload) }
        guard places.has(.isPrivate) else { return .flawed(.noNamespace) }
        assert(
            places.topic.upperBound <= row.byteCount && places.event.upperBound <= row.byteCount,
            "its parts are of its row")
        guard let time = MessageTime.parse(row.extracting(places.insertedAt)) else { return .flawed(.noTime) }
        let isJSON = places.has(.payload)
        guard isJSON || BinaryText.isReadable(row.extracting(places.binaryPayload)) else { return .flawed(.notBytes) }
        let isPrivate = row.extracting(places.isPrivate)
        return .message(DatabaseMessage(row, places, isPrivate: isPrivate.equals("t"), insertedAt: time))
    }

    /// Counts a row that cannot be broadcast, and logs its flaw at intervals. Of the log's readers, only one may call
    /// it.
    public static func note(_ flaw: Flaw, _ log: inout FlawLog) {
        log.skipped.add()
        guard log.isNews(flaw) else { return }
        Log.shared.warning(
            "UnableToBroadcastChanges: cannot broadcast a row of realtime.messages", [.reason(flaw.rawValue)])
    }
}

/// Counter of flawed rows, with the times at which each kind of flaw was last logged.
public struct FlawLog: Sendable {
    fileprivate let skipped: Counter
    private var saidAt: [DatabaseMessage.Flaw: UInt64] = [:]

    /// Creates the log.
    ///
    /// - Parameter skipped: the metric that counts flawed rows.
    public init(_ skipped: Counter) { self.skipped = skipped }

    mutating func isNews(_ flaw: DatabaseMessage.Flaw) -> Bool {
        let now = Clock.monotonicNanoseconds()
        if let before = saidAt[flaw], now - before < Limits.troubleReminderInterval.wholeNanoseconds { return false }
        saidAt[flaw] = now
        return true
    }
}

/// Byte ranges of a message's parts within its row.
struct MessagePlaces: Sendable {
    var id = 0..<0
    var topic = 0..<0
    var event = 0..<0
    var payload = 0..<0
    var binaryPayload = 0..<0
    var isPrivate = 0..<0
    var insertedAt = 0..<0
    var `extension` = 0..<0
    /// Bit set of the message's parts (`MessageLayout.Part`) that the row has. A present part may be an empty text.
    var known: UInt8 = 0
    /// True if the payload did not change and PostgreSQL did not send it again.
    var isUnchanged = false

    func has(_ part: MessageLayout.Part) -> Bool { known & 1 << part.rawValue != 0 }

    subscript(part: MessageLayout.Part) -> Range<Int> {
        get {
            switch part {
            case .id: id
            case .topic: topic
            case .event: event
            case .payload: payload
            case .binaryPayload: binaryPayload
            case .isPrivate: isPrivate
            case .insertedAt: insertedAt
            case .extension: `extension`
            }
        }
        set {
            known |= 1 << part.rawValue
            switch part {
            case .id: id = newValue
            case .topic: topic = newValue
            case .event: event = newValue
            case .payload: payload = newValue
            case .binaryPayload: binaryPayload = newValue
            case .isPrivate: isPrivate = newValue
            case .insertedAt: insertedAt = newValue
            case .extension: `extension` = newValue
            }
        }
    }
}

extension MessagePlaces {
    init(_ row: RawSpan, _ layout: MessageLayout) throws(ByteError) {
        var columns = TupleColumns(row)
        guard columns.remaining == layout.parts.count else {
            throw ByteError(expected: "a message as wide as its table", offset: 0)
        }
        for part in layout.parts {
            guard let value = try columns.next() else { return }
            guard let part else { continue }
            switch value {
            case .text(let text): self[part] = columns.offset - text.byteCount..<columns.offset
            case .unchanged: isUnchanged = isUnchanged || part == .payload || part == .binaryPayload
            default: break
            }
        }
    }
}

/// PostgreSQL's hexadecimal form of bytes: `\x` and digits. The hub's connections ask for this form.
enum BinaryText {
    static func isReadable(_ text: RawSpan) -> Bool {
        guard text.byteCount >= 2, text.byteCount % 2 == 0, text.byte(0) == UInt8(ascii: "\\"),
            text.byte(1) == UInt8(ascii: "x")
        else { return false }
        for place in 2..<text.byteCount where Hex.value(text.byte(place)) == nil { return false }
        return true
    }

    /// Appends the bytes. Returns false and appends nothing if the text has another form.
    static func append(_ text: RawSpan, to writer: inout ByteWriter) -> Bool {
        guard isReadable(text) else { return false }
        writer.reserve((text.byteCount - 2) / 2)
        var place = 2
        while place < text.byteCount {
            guard let high = Hex.value(text.byte(place)), let low = Hex.value(text.byte(place + 1)) else {
                return false
            }
            writer.append(high << 4 | low)
            place += 2
        }
        return true
    }
}

/// Parser of PostgreSQL's ISO timestamps such as `2026-03-01 10:00:00.123456`, with or without a time zone in whole
/// hours.
enum MessageTime {
    /// Returns the time in microseconds since 1970. Nil for any other text, and for years that do not have four digits
    /// (before Christ, five digits, infinity).
    static func parse(_ text: RawSpan) -> Int64? {
        guard text.byteCount >= 19, text.byte(4) == UInt8(ascii: "-"), text.byte(7) == UInt8(ascii: "-"),
            text.byte(10) == UInt8(ascii: " "), text.byte(13) == UInt8(ascii: ":"), text.byte(16) == UInt8(ascii: ":"),
            let year = number(text, 0..<4), let month = number(text, 5..<7), let day = number(text, 8..<10),
            let hour = number(text, 11..<13), let minute = number(text, 14..<16), let second = number(text, 17..<19),
            hour <= 24, minute < 60, second <= 60, let days = CivilDate.days(year, month, day)
        else { return nil }
        var place = 19
        let fraction = fraction(text, &place)
        guard let zone = zone(text, place) else { return nil }
        return ((days * 24 + hour - zone) * 60 + minute) * 60_000_000 + second * 1_000_000 + fraction
    }

    private static func number(_ text: RawSpan, _ range: Range<Int>) -> Int64? {
        var value: Int64 = 0
        for place in range {
            let digit = text.byte(place)
            guard (48...57).contains(digit) else { return nil }
            value = value * 10 + Int64(digit - 48)
        }
        return value
    }

    /// Reads a fraction of a second such as `.5`, in microseconds.
    private static func fraction(_ text: RawSpan, _ place: inout Int) -> Int64 {
        guard place < text.byteCount, text.byte(place) == UInt8(ascii: ".") else { return 0 }
        place += 1
        var (value, unit): (Int64, Int64) = (0, 100_000)
        while place < text.byteCount, (48...57).contains(text.byte(place)) {
            value += Int64(text.byte(place) - 48) * unit
            unit /= 10
            place += 1
        }
        return value
    }

    /// Reads the time zone in hours east of Greenwich; 0 if the text has none.
    private static func zone(_ text: RawSpan, _ place: Int) -> Int64? {
        if place == text.byteCount { return 0 }
        guard place + 3 == text.byteCount, let hours = number(text, place + 1..<place + 3) else { return nil }
        switch text.byte(place) {
        case UInt8(ascii: "+"): return hours
        case UInt8(ascii: "-"): return -hours
        default: return nil
        }
    }
}
