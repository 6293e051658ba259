/// Record of the clients that are present in a room, by presence key. After a rejoin it compares the server's new list
/// with the old one, and reports clients that are no longer listed as left.
struct PresenceBook: Sendable {
    /// Tracked states of each client by their refs, by the client's presence key.
    private var metas: [String: [String: JSONValue]] = [:]

    var now: TidewireRoom.Presences { metas.mapValues { $0.sorted { $0.key < $1.key }.map(\.value) } }

    /// Replaces the record by the server's complete list. Returns an event for the app; nil if nothing has changed.
    mutating func replace(_ told: [String: JSONValue]) -> TidewireRoom.Event? {
        let next = told.mapValues(Self.metas)
        let joined = Self.difference(next, without: metas)
        let left = Self.difference(metas, without: next)
        metas = next
        return event(joined, left)
    }

    /// Applies the server's difference message. Returns an event for the app; nil if nothing has changed.
    mutating func change(_ told: JSONValue) -> TidewireRoom.Event? {
        let leaves = (told["leaves"]?.object ?? [:]).mapValues(Self.metas)
        let joins = (told["joins"]?.object ?? [:]).mapValues(Self.metas)
        for (key, gone) in leaves {
            for ref in gone.keys { metas[key]?[ref] = nil }
            if metas[key]?.isEmpty == true { metas[key] = nil }
        }
        for (key, come) in joins { metas[key, default: [:]].merge(come) { _, new in new } }
        return event(joins, leaves)
    }

    private func event(
        _ joined: [String: [String: JSONValue]], _ left: [String: [String: JSONValue]]
    ) -> TidewireRoom.Event? {
        guard !joined.isEmpty || !left.isEmpty else { return nil }
        let values: ([String: JSONValue]) -> [JSONValue] = { $0.sorted { $0.key < $1.key }.map(\.value) }
        return .presence(joined: joined.mapValues(values), left: left.mapValues(values), now: now)
    }

    /// Returns the tracked states in one entry of the server's list, by their refs. The server gives each call of
    /// `track` a ref.
    private static func metas(_ told: JSONValue) -> [String: JSONValue] {
        var found: [String: JSONValue] = [:]
        for meta in told["metas"]?.array ?? [] {
            guard var payload = meta.object, let ref = payload.removeValue(forKey: "phx_ref")?.text else { continue }
            payload["phx_ref_prev"] = nil
            found[ref] = .object(payload)
        }
        return found
    }

    /// Returns the tracked states in `some` that are not in `others`, by presence key.
    private static func difference(
        _ some: [String: [String: JSONValue]], without others: [String: [String: JSONValue]]
    ) -> [String: [String: JSONValue]] {
        var rest: [String: [String: JSONValue]] = [:]
        for (key, metas) in some {
            let own = metas.filter { others[key]?[$0.key] == nil }
            if !own.isEmpty { rest[key] = own }
        }
        return rest
    }
}
