import Bytes

/// Broadcasts that clients send to each other, with a check that each client receives the right ones. The messages have
/// the binary form that JS and Swift clients push.
///
/// Clients with neighbouring numbers share a channel. Every message carries its speaker, its channel, its number and
/// the time at which it was due. So each receiver knows whether it is the speaker's next message.
struct Talk {
    struct Order: Sendable, Equatable {
        /// Size of a message's payload.
        var bytes: Int
        /// Microseconds between two messages of a client in a channel. With 0, a client sends its next message when it
        /// has received its last one back.
        var intervalMicroseconds: Int
        /// Number of messages that each client sends in each channel.
        var count: Int
        /// Number of clients that send, counted from the first client.
        var speakers: Int
        /// Number of clients that share a channel, for each channel of a client, in the order of its joins.
        var groups: [Int]
    }

    /// First byte of a binary broadcast that a client sends.
    static let saidKind: UInt8 = 3
    /// First byte of a binary broadcast that a client receives.
    static let heardKind: UInt8 = 4
    private static let event: StaticString = "message"
    /// Maximum time in milliseconds to wait for the last messages of a talk.
    static let patienceMilliseconds = 30_000

    let order: Order
    /// Number of each speaker's first message. Each talk has different numbers, so that late messages of an earlier
    /// talk are noticed.
    let first: Int
    /// Index of each channel's first speaker among the speakers from whom a client receives messages.
    private let offsets: [Int]
    /// Number of speakers from whom a client receives messages, in all its channels.
    private let width: Int
    /// Number of the next message that each client expects from each of its speakers.
    private var next: [UInt32]
    private let filler: [UInt8]
    private let begin: UInt64
    /// Difference between the wall clock and the monotonic clock, in microseconds.
    private let epochMicroseconds: Int64
    /// Number of messages that the clients have sent.
    private(set) var said = 0

    init(_ order: Order, clients: Int, first: Int, monotonic: UInt64, unixMicroseconds: Int64) {
        self.order = order
        self.first = first
        var offsets: [Int] = []
        var width = 0
        for group in order.groups {
            offsets.append(width)
            width += group
        }
        (self.offsets, self.width) = (offsets, width)
        next = Array(repeating: UInt32(first), count: clients * width)
        let text = Array("Expense of a shared trip, split evenly between four of us. ".utf8)
        filler = (0..<order.bytes).map { text[$0 % text.count] }
        begin = monotonic
        epochMicroseconds = unixMicroseconds - Int64(monotonic / 1000)
    }

    /// Number of messages that all clients together have to receive.
    var expected: Int { order.speakers * order.count * order.groups.reduce(0, +) }
    /// Number of messages that all clients together send.
    var total: Int { order.speakers * order.count * order.groups.count }
    /// True if each client sends its next message when it has received its last one back.
    var isAnswering: Bool { order.intervalMicroseconds == 0 }

    // MARK: Sending

    struct Turn {
        var speaker: Int
        var channel: Int
        var number: Int
        var dueMicroseconds: Int64
    }

    /// Monotonic time at which the next message is due, in nanoseconds. Nil if all messages are sent, or if each
    /// further message answers a received one.
    var nextDue: UInt64? {
        guard said < (isAnswering ? order.speakers * order.groups.count : total) else { return nil }
        return due(said)
    }

    /// Returns the monotonic time at which a message is due, in nanoseconds. `place` is its index among all messages of
    /// the talk. They are spread evenly over the interval. Clients of one channel do not send directly after each
    /// other, because real clients would not.
    private func due(_ place: Int) -> UInt64 {
        let each = order.speakers * order.groups.count
        return begin + UInt64(order.intervalMicroseconds) * 1000 * UInt64(place) / UInt64(each)
    }

    /// Returns the next message to send if it is due; nil otherwise.
    mutating func nextTurn(at now: UInt64) -> Turn? {
        guard let due = nextDue, due <= now else { return nil }
        let each = order.speakers * order.groups.count
        let (round, place) = said.quotientAndRemainder(dividingBy: each)
        let (channel, position) = place.quotientAndRemainder(dividingBy: order.speakers)
        let row = order.groups.max() ?? 1
        let rows = order.speakers / row
        said += 1
        return Turn(
            speaker: position % rows * row + position / rows, channel: channel, number: first + round,
            dueMicroseconds: isAnswering ? moment(now) : moment(due))
    }

    /// Returns the message that a speaker sends when it has received its previous one back; nil if it has no more to
    /// send.
    mutating func answer(to message: Message, at microseconds: Int64) -> Turn? {
        guard isAnswering, message.number + 1 < first + order.count else { return nil }
        said += 1
        return Turn(
            speaker: message.speaker, channel: message.channel, number: message.number + 1,
            dueMicroseconds: microseconds)
    }

    /// Converts a monotonic time in nanoseconds to Unix microseconds.
    private func moment(_ nanoseconds: UInt64) -> Int64 { epochMicroseconds + Int64(nanoseconds / 1000) }

    /// Appends a broadcast in the binary form of the protocol: `3 · joinRefLen · refLen · topicLen · eventLen ·
    /// metadataLen · encoding`, followed by these fields.
    func append(_ turn: Turn, _ topic: ClientText, number: Int, to writer: inout ByteWriter) {
        writer.append(Self.saidKind)
        writer.append(UInt8(1))
        writer.append(UInt8(1))
        writer.append(little: UInt32(0))
        writer.append(decimal: Int64(turn.channel + 1))
        writer.append("7")
        let start = writer.count
        topic.append(client: number, to: &writer)
        let topicBytes = UInt32(writer.count - start)
        precondition(topicBytes < 256, "a topic's length is one byte")
        writer.set(little: topicBytes | UInt32(Self.event.utf8CodeUnitCount) << 8 | 1 << 24, at: 3)
        writer.append(Self.event)
        let payload = writer.count
        writer.append("{\"from\":")
        writer.append(decimal: Int64(turn.speaker))
        writer.append(",\"to\":")
        writer.append(decimal: Int64(turn.channel))
        writer.append(",\"seq\":")
        writer.append(decimal: Int64(turn.number))
        writer.append(",\"at\":")
        writer.append(decimal: turn.dueMicroseconds)
        writer.append(",\"text\":\"")
        let room = order.bytes - (writer.count - payload) - 2
        if room > 0 {
            writer.append(filler.rawBytes.extracting(0..<room))
        }
        writer.append("\"}")
    }

    // MARK: Receiving

    enum Verdict: Equatable {
        case inPlace(Message)
        case again
        /// Message that follows missing ones of the same speaker, with the number of the missing ones.
        case passedOver(Int, Message)
        case foreign
        case malformed
    }

    struct Message: Equatable {
        var speaker: Int
        var channel: Int
        var number: Int
        var dueMicroseconds: Int64
    }

    /// Checks a message that a client received. The message must have the client's topic; `scratch` is a buffer for
    /// building it.
    mutating func hear(
        _ client: Int, _ bytes: RawSpan, topics: [ClientText], firstNumber: Int, scratch: inout ByteWriter
    ) -> Verdict {
        guard let (message, topic, rest) = Self.read(bytes), message.channel < order.groups.count,
            message.channel < topics.count
        else { return .malformed }
        guard isFiller(bytes.extracting(rest)) else { return .malformed }
        scratch.removeAll()
        topics[message.channel].append(client: firstNumber + client, to: &scratch)
        let group = order.groups[message.channel]
        guard scratch.bytes.equals(bytes.extracting(topic)), message.speaker / group == client / group,
            message.speaker < order.speakers
        else { return .foreign }
        let place = client * width + offsets[message.channel] + message.speaker % group
        let wanted = Int(next[place])
        guard message.number >= wanted else { return .again }
        next[place] = UInt32(message.number + 1)
        return message.number == wanted ? .inPlace(message) : .passedOver(message.number - wanted, message)
    }

    private func isFiller(_ bytes: RawSpan) -> Bool {
        guard bytes.byteCount <= filler.count else { return false }
        return filler.rawBytes.extracting(0..<bytes.byteCount).equals(bytes)
    }

    /// Parses a binary broadcast. Returns it with the ranges of its topic and its text in the bytes.
    private static func read(_ bytes: RawSpan) -> (Message, topic: Range<Int>, text: Range<Int>)? {
        guard bytes.byteCount > 5, bytes.byte(0) == heardKind else { return nil }
        let topic = 5..<5 + Int(bytes.byte(1))
        var at = topic.upperBound + Int(bytes.byte(2)) + Int(bytes.byte(3))
        guard let speaker = number(after: "{\"from\":", bytes, &at),
            let channel = number(after: ",\"to\":", bytes, &at),
            let number = number(after: ",\"seq\":", bytes, &at), let due = Self.number(after: ",\"at\":", bytes, &at),
            skip(",\"text\":\"", bytes, &at), bytes.byteCount >= at + 2,
            bytes.extracting(bytes.byteCount - 2..<bytes.byteCount).equals("\"}")
        else { return nil }
        let message = Message(
            speaker: Int(speaker), channel: Int(channel), number: Int(number), dueMicroseconds: due)
        return (message, topic, at..<bytes.byteCount - 2)
    }

    private static func skip(_ text: StaticString, _ bytes: RawSpan, _ at: inout Int) -> Bool {
        let end = at + text.utf8CodeUnitCount
        guard end <= bytes.byteCount, bytes.extracting(at..<end).equals(text) else { return false }
        at = end
        return true
    }

    private static func number(after text: StaticString, _ bytes: RawSpan, _ at: inout Int) -> Int64? {
        guard skip(text, bytes, &at), let value = bytes.wholeNumber(at: at), value >= 0 else { return nil }
        while at < bytes.byteCount, bytes.byte(at) &- 48 < 10 { at += 1 }
        return value
    }
}

extension Talk.Order {
    /// Parses BYTES INTERVAL COUNT SPEAKERS GROUP,GROUP….
    init?(words: [String]) {
        guard words.count == 5 else { return nil }
        let numbers = words.prefix(4).compactMap { Int($0) }
        let groups = words[4].split(separator: ",").compactMap { Int($0) }
        guard numbers.count == 4, numbers.allSatisfy({ $0 >= 0 }), numbers[0] <= 1 << 20, numbers[2] > 0,
            numbers[3] > 0, !groups.isEmpty, groups.count < 10,
            groups.allSatisfy({ $0 > 0 && numbers[3].isMultiple(of: $0) })
        else { return nil }
        self.init(
            bytes: numbers[0], intervalMicroseconds: numbers[1], count: numbers[2], speakers: numbers[3],
            groups: groups)
    }

    var line: String {
        "talk \(bytes) \(intervalMicroseconds) \(count) \(speakers) "
            + groups.map { String($0) }.joined(separator: ",")
    }

    var milliseconds: Int { intervalMicroseconds * count / 1000 }
}
