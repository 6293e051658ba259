@testable import TidewireClient

/// Client's state machine with a test's clock. A test passes events to it and checks the actions that it returns.
struct Conversation {
    var machine: ClientMachine
    var now = Duration.zero

    init(_ account: ClientMachine.Account = .signedIn(token: "first"), seed: UInt64 = 1) {
        machine = ClientMachine(account: account, seed: seed)
    }

    @discardableResult
    mutating func on(_ event: ClientMachine.Event) -> [ClientMachine.Action] { machine.handle(event, at: now) }

    /// Moves the clock forward. Every event that becomes due happens at its own time.
    @discardableResult
    mutating func wait(_ duration: Duration) -> [ClientMachine.Action] {
        let end = now + duration
        var actions: [ClientMachine.Action] = []
        while let due = machine.nextWake, due <= end {
            now = max(now, due)
            actions += on(.woke)
        }
        now = end
        return actions
    }

    @discardableResult
    mutating func hear(
        _ event: String, _ payload: JSONValue, topic: String = "realtime:a", joinRef: String? = nil, ref: String? = nil
    ) -> [ClientMachine.Action] {
        on(.received(ServerMessage(joinRef: joinRef, ref: ref, topic: topic, event: event, payload: payload)))
    }

    /// Returns a client that has subscribed to one table and whose socket is open.
    static func opened(at position: LogPosition? = nil) -> (Conversation, joinRef: String) {
        var talk = Conversation()
        talk.on(.subscribe(1, request(at: position)))
        let joinRef = talk.on(.opened).sent.first?.ref ?? ""
        return (talk, joinRef)
    }

    static func request(at position: LogPosition? = nil) -> ChannelRequest {
        ChannelRequest(topic: "a", bindings: [TableBinding(table: "t")], position: position)
    }

    /// Accepts a join. `position` is nil if the server keeps no positions. With `isEarly`, it is nil because the server
    /// has none yet.
    @discardableResult
    mutating func admit(
        _ ref: String, at position: String?, recovered: Bool? = nil, isEarly: Bool = false
    ) -> [ClientMachine.Action] {
        var response: [String: JSONValue] = ["postgres_changes": []]
        if isEarly { response["tidewire"] = ["position": .null] }
        if let position {
            var standing: [String: JSONValue] = ["position": .string(position)]
            if let recovered { standing["recovered"] = .bool(recovered) }
            if recovered == false { standing["reason"] = "older_than_retention" }
            response["tidewire"] = .object(standing)
        }
        return hear("phx_reply", ["status": "ok", "response": .object(response)], joinRef: ref, ref: ref)
    }

    @discardableResult
    mutating func hearCaughtUp(_ position: String, joinRef: String) -> [ClientMachine.Action] {
        hear(
            "system",
            [
                "extension": "system", "status": "ok", "code": "CaughtUp", "message": "Caught up",
                "position": .string(position),
            ], joinRef: joinRef)
    }

    @discardableResult
    mutating func hearChange(_ id: Int, at position: String?, behind previous: String? = nil) -> [ClientMachine.Action]
    {
        var payload: [String: JSONValue] = ["ids": [1], "data": Self.inserted(id)]
        if let position { payload["position"] = .string(position) }
        if let previous { payload["previous"] = .string(previous) }
        return hear("postgres_changes", .object(payload))
    }

    static func inserted(_ id: Int) -> JSONValue {
        [
            "schema": "public", "table": "t", "type": "INSERT", "commit_timestamp": "2026-01-01T00:00:00.000Z",
            "columns": [["name": "id", "type": "int4"]], "record": ["id": .number("\(id)")], "errors": nil,
        ]
    }
}

extension [ClientMachine.Action] {
    var sent: [ClientMessage] {
        compactMap { action in
            if case .send(let message) = action { message } else { nil }
        }
    }

    var told: [ChannelMachine.Output] {
        compactMap { action in
            if case .tell(_, let output) = action { output } else { nil }
        }
    }

    /// Ids of the received rows.
    var rows: [String] {
        told.compactMap { output in
            if case .change(let change) = output, case .number(let id)? = change.record["id"] { id } else { nil }
        }
    }
}
