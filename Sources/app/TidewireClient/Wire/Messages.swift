/// A message from the client, in version 2.0.0 of the protocol's message format.
package struct ClientMessage: Sendable, Hashable {
    package var joinRef: String?
    package var ref: String?
    package var topic: String
    package var event: String
    package var payload: JSONValue

    package init(joinRef: String? = nil, ref: String? = nil, topic: String, event: String, payload: JSONValue = [:]) {
        self.joinRef = joinRef
        self.ref = ref
        self.topic = topic
        self.event = event
        self.payload = payload
    }

    /// The message as JSON text, `[join_ref, ref, topic, event, payload]`.
    package var text: String {
        JSONValue.array([
            joinRef.map(JSONValue.string) ?? .null, ref.map(JSONValue.string) ?? .null, .string(topic), .string(event),
            payload,
        ]).json
    }

    /// Parses a client's message, as a server does.
    package init(parsing text: String) throws(JSONValue.ParsingError) { try self.init(JSONValue(parsing: text)) }

    fileprivate init(_ json: JSONValue) throws(JSONValue.ParsingError) {
        guard case .array(let items) = json, items.count >= 5, let topic = items[2].text, let event = items[3].text
        else { throw JSONValue.ParsingError(expected: "an array of five", offset: 0) }
        self.init(joinRef: items[0].text, ref: items[1].text, topic: topic, event: event, payload: items[4])
    }
}

/// A message from the server.
package struct ServerMessage: Sendable, Hashable {
    package var joinRef: String?
    package var ref: String?
    package var topic: String
    package var event: String
    package var payload: JSONValue
    /// Payload of a binary broadcast; nil for other messages. `payload` then contains only the event and the metadata.
    package var bytes: [UInt8]?

    package init(
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

    package init(parsing text: String) throws(JSONValue.ParsingError) {
        var said = PreviousColumns()
        try self.init(parsing: text, &said)
    }

    init(parsing text: String, _ said: inout PreviousColumns) throws(JSONValue.ParsingError) {
        let message = try ClientMessage(JSONValue(parsing: Array(text.utf8), &said))
        self.init(
            joinRef: message.joinRef, ref: message.ref, topic: message.topic, event: message.event,
            payload: message.payload)
    }

    /// The message as JSON text, as a server sends it.
    package var text: String {
        ClientMessage(joinRef: joinRef, ref: ref, topic: topic, event: event, payload: payload).text
    }

    /// Parses a binary frame of kind 4, which is a broadcast: `04 | topic, event and metadata lengths | encoding | …`.
    package init(parsing frame: [UInt8]) throws(JSONValue.ParsingError) {
        guard frame.count >= 5, frame[0] == 4 else { throw JSONValue.ParsingError(expected: "a broadcast", offset: 0) }
        let lengths = frame[1...3].map(Int.init)
        let start = 5 + lengths.reduce(0, +)
        guard start <= frame.count else { throw JSONValue.ParsingError(expected: "as much as is announced", offset: 5) }
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
