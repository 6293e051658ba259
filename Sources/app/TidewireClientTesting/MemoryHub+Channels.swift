import Synchronization
import TidewireClient

extension MemoryHub {
    /// Removes a client that has closed its connection.
    func closed(_ peer: Int) {
        state.withLock { state in
            leave(peer, &state)
            state.peers[peer] = nil
        }
        flush()
    }

    /// Handles a message that a client sent.
    func received(_ text: String, from peer: Int) {
        state.withLock { state in
            guard let message = try? ClientMessage(parsing: text), state.peers[peer] != nil else { return }
            state.messages.append(message)
            handle(message, peer, &state)
        }
        flush()
    }

    private func handle(_ message: ClientMessage, _ peer: Int, _ state: inout State) {
        switch message.event {
        case "heartbeat":
            if state.answersHeartbeats { reply(peer, message, [:], &state) }
        case "phx_join": join(message, peer, &state)
        case "phx_leave":
            if let channel = state.peers[peer]?.channels.removeValue(forKey: message.topic) {
                untrack(message.topic, channel.presenceKey, &state)
            }
            reply(peer, message, [:], &state)
        case "access_token": state.peers[peer]?.channels[message.topic]?.token = message.payload["access_token"]?.text
        case "broadcast":
            guard let channel = state.peers[peer]?.channels[message.topic] else { return }
            if let refusal = state.messageRefusal { return refuse(message, peer, channel, refusal, &state) }
            reply(peer, message, [:], &state)
            say(
                message.payload["event"]?.text ?? "", message.payload["payload"] ?? .null, to: message.topic,
                but: channel.hearsItself ? nil : peer, &state)
        case "presence":
            reply(peer, message, [:], &state)
            track(message, peer, &state)
        default: break
        }
    }

    private func join(_ message: ClientMessage, _ peer: Int, _ state: inout State) {
        let token = message.payload["access_token"]?.text
        if let token, state.expired.contains(token) {
            let refusal: JSONValue = ["reason": "InvalidJWTToken: Token has expired 1 seconds ago"]
            return reply(peer, message, refusal, status: "error", &state)
        }
        if state.refusedRooms.contains(message.topic) {
            let refusal: JSONValue = ["reason": "Unauthorized: You do not have permissions to read this topic"]
            return reply(peer, message, refusal, status: "error", &state)
        }
        let config = message.payload["config"] ?? .null
        let options = config["broadcast"]?["tidewire"] ?? .null
        let bindings = (config["postgres_changes"]?.array ?? []).map { binding in
            TableBinding(
                schema: binding["schema"]?.text ?? "public", table: binding["table"]?.text ?? "",
                filter: binding["filter"]?.text)
        }
        let key = config["presence"]?["key"]?.text ?? ""
        let asked = options["resume"]?.text.flatMap { LogPosition($0) }
        let (cursor, refusal) = standing(asked, state)
        let hearsPosition = state.keepsPositions && options["position"]?.bool == true
        let channel = Channel(
            topic: message.topic, joinRef: message.joinRef ?? "", bindings: bindings, hearsPosition: hearsPosition,
            hearsItself: config["broadcast"]?["self"]?.bool == true, token: token, cursor: cursor,
            previous: "\(state.epoch).\(cursor)", presenceKey: key.isEmpty ? "peer\(peer)" : key)
        state.peers[peer]?.channels[message.topic] = channel
        var response: [String: JSONValue] = ["postgres_changes": .array(config["postgres_changes"]?.array ?? [])]
        if hearsPosition {
            var told: [String: JSONValue] = ["position": .string(channel.previous)]
            if asked != nil { told["recovered"] = .bool(refusal == nil) }
            if let refusal { told["reason"] = .string(refusal) }
            response["tidewire"] = .object(told)
        }
        reply(peer, message, .object(response), &state)
        if config["presence"]?["enabled"]?.bool == true { sayPresences(peer, channel, &state) }
        let isRecovered = asked != nil && refusal == nil
        if hearsPosition, options["snapshot"]?.bool == true, !isRecovered { sayRows(peer, channel, &state) }
        deliver(&state)
        if hearsPosition, !bindings.isEmpty {
            let words: JSONValue = [
                "extension": "system", "status": "ok", "code": "CaughtUp", "message": "Caught up",
                "position": .string("\(state.epoch).\(state.log.count)"), "channel": .string(channel.topic),
            ]
            send(peer, channel.joinRef, nil, channel.topic, "system", words, &state)
        }
    }

    // MARK: Rows

    /// Returns the existing rows of a table, computed from all changes in the log.
    private func rows(_ table: String, _ state: State) -> [[String: JSONValue]] {
        var order: [[JSONValue?]] = []
        var rows: [[JSONValue?]: [String: JSONValue]] = [:]
        for entry in state.log where entry.table == table && entry.raw == nil {
            let (old, new) = (key.map { entry.old[$0] }, key.map { entry.new[$0] })
            if !entry.old.isEmpty { rows[old] = nil }
            guard !entry.new.isEmpty else { continue }
            if rows.updateValue(entry.new, forKey: new) == nil { order.append(new) }
        }
        return order.compactMap { rows.removeValue(forKey: $0) }
    }

    /// Sends the existing rows of the bound tables to a channel.
    private func sayRows(_ peer: Int, _ channel: Channel, _ state: inout State) {
        var words: [String: JSONValue] = ["extension": "system", "channel": .string(channel.topic)]
        if !state.rowsRefusals.isEmpty {
            words["status"] = state.rowsRefusals.removeFirst() ? "error" : "ok"
            words["code"] = "SnapshotFailed"
            words["message"] = "No snapshot; changes are told from here on"
        } else {
            var count = 0
            for binding in channel.bindings {
                for row in rows(binding.table, state) where sees(channel.token, binding.table, row) {
                    guard binding.filter.map({ FilterText($0).matches(row) }) ?? true else { continue }
                    count += 1
                    let data: JSONValue = [
                        "schema": "public", "table": .string(binding.table), "type": "INSERT",
                        "commit_timestamp": "2026-01-01T00:00:00.000Z", "record": .object(row), "errors": nil,
                        "columns": .array(row.keys.sorted().map { ["name": .string($0), "type": "text"] }),
                        "tidewire": ["snapshot": true],
                    ]
                    send(peer, nil, nil, channel.topic, "postgres_changes", ["ids": [1], "data": data], &state)
                }
            }
            state.snapshots += 1
            words["status"] = "ok"
            words["code"] = "SnapshotComplete"
            words["message"] = .string("Snapshot complete: \(count) rows")
            words["rows"] = .number("\(count)")
            words["position"] = .string("\(state.epoch).\(state.log.count)")
        }
        send(peer, channel.joinRef, nil, channel.topic, "system", .object(words), &state)
    }

    /// Decides where a joining channel continues in the log. Returns the index of the next entry to send and, if the
    /// asked position cannot be resumed, the reason.
    func standing(_ asked: LogPosition?, _ state: State) -> (cursor: Int, refusal: String?) {
        guard let asked, state.keepsPositions else { return (state.log.count, nil) }
        if asked.epoch != state.epoch { return (state.log.count, "epoch_changed") }
        if asked.offset > UInt64(state.log.count) { return (state.log.count, "unknown_position") }
        if asked.offset < UInt64(state.first) { return (state.log.count, "older_than_retention") }
        return (Int(asked.offset), nil)
    }

    // MARK: Changes

    func channels(_ state: inout State) -> [(peer: Int, channel: Channel)] {
        state.peers.keys.sorted().flatMap { peer in
            (state.peers[peer]?.channels ?? [:]).sorted { $0.key < $1.key }.map { (peer, $0.value) }
        }
    }

    /// Sends each channel the log's entries from its cursor on. A live channel is one whose cursor is at the log's end.
    func deliver(_ state: inout State) {
        for (peer, channel) in channels(&state) {
            var channel = channel
            while channel.cursor < state.log.count {
                let entry = state.log[channel.cursor]
                channel.cursor += 1
                guard let data = view(entry, channel) else { continue }
                var payload: [String: JSONValue] = ["ids": [1], "data": data]
                if channel.hearsPosition {
                    let position = "\(state.epoch).\(channel.cursor)"
                    payload["position"] = .string(position)
                    payload["previous"] = .string(channel.previous)
                    channel.previous = position
                }
                send(peer, nil, nil, channel.topic, "postgres_changes", .object(payload), &state)
            }
            state.peers[peer]?.channels[channel.topic] = channel
        }
    }

    /// Returns an entry of the log as the payload for a channel; nil if the channel must not receive it.
    func view(_ entry: Entry, _ channel: Channel) -> JSONValue? {
        let bindings = channel.bindings.filter { $0.table == entry.table || $0.table == "*" }
        guard !bindings.isEmpty else { return nil }
        if let raw = entry.raw { return raw }
        let matches: ([String: JSONValue]) -> Bool = { row in
            !row.isEmpty && self.sees(channel.token, entry.table, row)
                && bindings.contains { $0.filter.map { FilterText($0).matches(row) } ?? true }
        }
        let (isSeen, wasSeen) = (matches(entry.new), matches(entry.old))
        let shown = isSeen ? entry.new : entry.old
        var data: [String: JSONValue] = [
            "schema": "public", "table": .string(entry.table), "commit_timestamp": .string(entry.commit), "errors": nil,
            "columns": .array(shown.keys.sorted().map { ["name": .string($0), "type": "text"] }),
        ]
        switch (entry.kind, isSeen, wasSeen) {
        case ("INSERT", true, _), ("UPDATE", true, _):
            data["type"] = .string(entry.kind)
            data["record"] = .object(entry.new)
            if entry.kind == "UPDATE" { data["old_record"] = .object(wasSeen ? entry.old : [:]) }
        case ("DELETE", _, true):
            data["type"] = "DELETE"
            data["old_record"] = .object(entry.old.filter { key.contains($0.key) })
        case ("UPDATE", false, true):
            data["type"] = "DELETE"
            data["old_record"] = .object(entry.old)
            data["tidewire"] = ["moved": "out"]
        default: return nil
        }
        return .object(data)
    }

    // MARK: Broadcast and presence

    private func refuse(
        _ message: ClientMessage, _ peer: Int, _ channel: Channel, _ refusal: MessageRefusal, _ state: inout State
    ) {
        switch refusal {
        case .tooLarge: reply(peer, message, ["reason": "payload_size_exceeded"], status: "error", &state)
        case .tooMany: close(peer, channel, "TooManyMessages", "Too many messages per second", &state)
        case .noRight:
            let words: JSONValue = [
                "extension": "system", "status": "ok", "code": "MessageDropped",
                "message": "A broadcast was dropped: you may not write to this channel",
                "channel": .string(channel.topic),
            ]
            send(peer, channel.joinRef, nil, channel.topic, "system", words, &state)
        }
    }

    /// Closes a channel and tells its client the reason.
    func close(_ peer: Int, _ channel: Channel, _ code: String, _ message: String, _ state: inout State) {
        let words: JSONValue = [
            "extension": "system", "status": "error", "code": .string(code), "message": .string(message),
            "channel": .string(channel.topic),
        ]
        send(peer, channel.joinRef, nil, channel.topic, "system", words, &state)
        send(peer, channel.joinRef, channel.joinRef, channel.topic, "phx_close", [:], &state)
        state.peers[peer]?.channels[channel.topic] = nil
    }

    /// Sends a message to all channels of a topic except that of the client `sender`.
    func say(_ event: String, _ payload: JSONValue, to topic: String, but sender: Int?, _ state: inout State) {
        let body: JSONValue = ["type": "broadcast", "event": .string(event), "payload": payload]
        for (peer, channel) in channels(&state) where channel.topic == topic && peer != sender {
            send(peer, nil, nil, topic, "broadcast", body, &state)
        }
    }

    /// Sends all presences of a topic to a channel that has joined.
    private func sayPresences(_ peer: Int, _ channel: Channel, _ state: inout State) {
        let present = (state.presences[channel.topic] ?? [:]).mapValues { Self.metas($0.ref, $0.payload) }
        send(peer, channel.joinRef, nil, channel.topic, "presence_state", .object(present), &state)
    }

    private static func metas(_ ref: String, _ payload: JSONValue) -> JSONValue {
        var meta = payload.object ?? [:]
        meta["phx_ref"] = .string(ref)
        return ["metas": [.object(meta)]]
    }

    private func track(_ message: ClientMessage, _ peer: Int, _ state: inout State) {
        guard let channel = state.peers[peer]?.channels[message.topic] else { return }
        guard message.payload["event"]?.text == "track" else {
            return untrack(message.topic, channel.presenceKey, &state)
        }
        let payload = message.payload["payload"] ?? [:]
        state.nextPresence += 1
        let ref = "p\(state.nextPresence)"
        let former = state.presences[message.topic]?[channel.presenceKey]
        state.presences[message.topic, default: [:]][channel.presenceKey] = (peer, ref, payload)
        let leaves: JSONValue =
            former.map { [channel.presenceKey: $0] }.map { left in
                .object(left.mapValues { Self.metas($0.ref, $0.payload) })
            } ?? [:]
        sayDiff(message.topic, joins: .object([channel.presenceKey: Self.metas(ref, payload)]), leaves: leaves, &state)
    }

    private func untrack(_ topic: String, _ key: String, _ state: inout State) {
        guard let left = state.presences[topic]?.removeValue(forKey: key) else { return }
        sayDiff(topic, joins: [:], leaves: .object([key: Self.metas(left.ref, left.payload)]), &state)
    }

    /// Sends a difference of presence to all channels of a topic.
    private func sayDiff(_ topic: String, joins: JSONValue, leaves: JSONValue, _ state: inout State) {
        for (peer, channel) in channels(&state) where channel.topic == topic {
            send(peer, nil, nil, topic, "presence_diff", ["joins": joins, "leaves": leaves], &state)
        }
    }

    /// Removes a client's channels, and tells the other clients that it is no longer present.
    func leave(_ peer: Int, _ state: inout State) {
        let channels = state.peers[peer]?.channels ?? [:]
        state.peers[peer]?.channels = [:]
        for (topic, channel) in channels.sorted(by: { $0.key < $1.key }) { untrack(topic, channel.presenceKey, &state) }
    }

    // MARK: Messages

    private func reply(
        _ peer: Int, _ message: ClientMessage, _ response: JSONValue, status: String = "ok", _ state: inout State
    ) {
        let payload: JSONValue = ["status": .string(status), "response": response]
        send(peer, message.joinRef, message.ref, message.topic, "phx_reply", payload, &state)
    }

    func send(
        _ peer: Int, _ joinRef: String?, _ ref: String?, _ topic: String, _ event: String, _ payload: JSONValue,
        _ state: inout State
    ) {
        let message = ServerMessage(joinRef: joinRef, ref: ref, topic: topic, event: event, payload: payload)
        state.outbox.append((peer, .text(message.text)))
    }
}
