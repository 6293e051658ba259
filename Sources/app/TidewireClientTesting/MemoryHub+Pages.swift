import Foundation
import Synchronization
import TidewireClient

/// Handler of `GET /api/changes`.
extension MemoryHub {
    package func get(_ request: TransportRequest) async throws -> TransportAnswer {
        let asked = PageRequest(request)
        return try state.withLock { state in
            state.requests += 1
            if let refusal = state.refusal { throw refusal }
            if let token = asked.token, state.expired.contains(token) {
                return Self.answer(401, ["error": "Token has expired", "code": "TokenRefused"])
            }
            guard state.keepsPositions else { return Self.answer(404, ["error": "Not found"]) }
            let (cursor, refusal) = standing(asked.after, state)
            if let refusal {
                return Self.answer(
                    409,
                    [
                        "error": "fetch again", "code": "MustFetchAgain", "reason": .string(refusal),
                        "position": .string("\(state.epoch).\(cursor)"),
                    ])
            }
            return page(asked, from: cursor, state)
        }
    }

    private func page(_ asked: PageRequest, from cursor: Int, _ state: State) -> TransportAnswer {
        let channel = Channel(
            topic: "", joinRef: "", bindings: asked.bindings, hearsPosition: true, hearsItself: false,
            token: asked.token, cursor: cursor, previous: "", presenceKey: "")
        var events: [JSONValue] = []
        var cursor = cursor
        while cursor < state.log.count, events.count < asked.limit {
            let entry = state.log[cursor]
            cursor += 1
            guard let data = view(entry, channel) else { continue }
            events.append(["type": "change", "data": data, "position": .string("\(state.epoch).\(cursor)")])
        }
        return Self.answer(
            200,
            [
                "events": .array(events), "system": [], "position": .string("\(state.epoch).\(cursor)"),
                "more": .bool(cursor < state.log.count),
            ])
    }

    private static func answer(_ status: Int, _ body: JSONValue) -> TransportAnswer {
        TransportAnswer(status: status, body: Array(body.json.utf8))
    }
}

private struct PageRequest {
    private(set) var bindings: [TableBinding] = []
    private(set) var after: LogPosition?
    private(set) var limit = 1000
    let token: String?

    init(_ request: TransportRequest) {
        token = request.headers["Authorization"].map { String($0.dropFirst("Bearer ".count)) }
        for item in URLComponents(url: request.url, resolvingAgainstBaseURL: true)?.queryItems ?? [] {
            switch item.name {
            case "table": bindings.append(TableBinding(table: item.value ?? ""))
            case "filter" where !bindings.isEmpty: bindings[bindings.count - 1].filter = item.value
            case "after": after = item.value.flatMap { LogPosition($0) }
            case "limit": limit = item.value.flatMap { Int($0) } ?? limit
            default: break
            }
        }
    }
}
