/// A message of the client, in the protocol's serializer 2.0.0.
public struct ClientMessage: Sendable, Hashable {
    public var joinRef: String?
    public var ref: String?
    public var topic: String
    public var event: String
    public var payload: JSONValue

    public init(joinRef: String? = nil, ref: String? = nil, topic: String, event: String, payload: JSONValue = [:]) {
        self.joinRef = joinRef
        self.ref = ref
        self.topic = topic
        self.event = event
        self.payload = payload
    }

    /// The message as `[join_ref, ref, topic, event, payload]`.
    public var text: String {
        JSONValue.array([
            joinRef.map(JSONValue.string) ?? .null, ref.map(JSONValue.string) ?? .null, .string(topic), .string(event),
            payload,
        ]).json
    }

    /// Parses a message as a server does.
    public init(parsing text: String) throws(JSONError) { try self.init(JSONValue(parsing: text)) }

    fileprivate init(_ json: JSONValue) throws(JSONError) {
        guard case .array(let items) = json, items.count >= 5, let topic = items[2].text, let event = items[3].text
        else { throw JSONError(expected: "an array of five", offset: 0) }
        self.init(joinRef: items[0].text, ref: items[1].text, topic: topic, event: event, payload: items[4])
    }
}

/// A message of the server.
public struct ServerMessage: Sendable, Hashable {
    public var joinRef: String?
    public var ref: String?
    public var topic: String
    public var event: String
    public var payload: JSONValue
    /// Payload of a binary broadcast. `payload` then contains only its event and metadata.
    public var bytes: [UInt8]?

    public init(
        joinRef: String? = nil, ref: String? = nil, topic: String, event: String, payload: JSONValue,
        bytes: [UInt8]? = nil
    ) {
        self.joinRef = joinRef
        self.ref = ref
        self.topic = topic
        self.event = event
        self.payload = payload
        self.bytes = bytes
    }

    public init(parsing text: String) throws(JSONError) {
        var said = SaidBefore()
        try self.init(parsing: text, &said)
    }

    init(parsing text: String, _ said: inout SaidBefore) throws(JSONError) {
        let message = try ClientMessage(JSONValue(parsing: Array(text.utf8), &said))
        self.init(
            joinRef: message.joinRef, ref: message.ref, topic: message.topic, event: message.event,
            payload: message.payload)
    }

    /// The message in the form that a server sends.
    public var text: String {
        ClientMessage(joinRef: joinRef, ref: ref, topic: topic, event: event, payload: payload).text
    }

    /// Parses a binary frame of kind 4, a broadcast. Layout: `04 | topic | event | metadata lengths | encoding | …`.
    public init(parsing frame: [UInt8]) throws(JSONError) {
        guard frame.count >= 5, frame[0] == 4 else { throw JSONError(expected: "a broadcast", offset: 0) }
        let lengths = frame[1...3].map(Int.init)
        let start = 5 + lengths.reduce(0, +)
        guard start <= frame.count else { throw JSONError(expected: "as much as is announced", offset: 5) }
        let topicEnd = 5 + lengths[0]
        let eventEnd = topicEnd + lengths[1]
        var payload: [String: JSONValue] = [
            "type": "broadcast", "event": .string(String(decoding: frame[topicEnd..<eventEnd], as: UTF8.self)),
        ]
        if lengths[2] > 0 { payload["meta"] = try JSONValue(parsing: Array(frame[eventEnd..<start])) }
        let isJSON = frame[4] != 0
        if isJSON { payload["payload"] = try JSONValue(parsing: Array(frame[start...])) }
        self.init(
            topic: String(decoding: frame[5..<topicEnd], as: UTF8.self), event: "broadcast", payload: .object(payload),
            bytes: isJSON ? nil : Array(frame[start...]))
    }
}
