import Foundation

/// A client of a Tidewire hub, or of any server with the same protocol. All subscriptions share one connection, and
/// changes that the client missed while it was offline are delivered after it reconnects.
///
/// ```swift
/// let tidewire = Tidewire(url: URL(string: "https://hub.example.com")!, key: anonKey, token: session.accessToken)
///
/// for await batch in tidewire.live(Expense.self, where: \.ownerID == me, after: store.position) {
///     try store.save(batch.changes, at: batch.position)      // both in one transaction of the app's own
/// }
/// ```
///
/// Cancelling the task ends the subscription. The app does not need to keep any subscription object.
public final class Tidewire: Sendable {
    let engine: Engine

    /// Creates a client. It connects when the first query or room needs a connection.
    ///
    /// - Parameters:
    ///   - url: address of the hub, or of its `…/realtime/v1`.
    ///   - key: public key of the project.
    ///   - token: token of the signed-in user; nil while no user is signed in.
    ///   - storage: storage for positions that the app does not save itself.
    ///   - maximumWaitingChanges: maximum number of changes of one query that wait for the app. The client drops
    ///     changes beyond that and asks the server for them again when the app takes the waiting ones.
    public convenience init(
        url: URL, key: String, token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        maximumWaitingChanges: Int = 10_000
    ) {
        self.init(
            url: url, key: key, token: token, storage: storage, maximumWaitingChanges: maximumWaitingChanges,
            seams: TidewireSeams())
    }

    package init(
        url: URL, key: String, token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        maximumWaitingChanges: Int = 10_000, seams: TidewireSeams
    ) {
        engine = Engine(
            TransportRequest(url: Self.address(url, key)),
            account: token.map { .signedIn(token: $0) } ?? .signedOut, transport: seams.transport, clock: seams.clock,
            storage: storage, maximumWaitingChanges: maximumWaitingChanges, seed: seams.seed)
    }

    static func address(_ url: URL, _ key: String) -> URL {
        guard var parts = URLComponents(url: url, resolvingAgainstBaseURL: true) else { return url }
        parts.scheme = ["https", "wss"].contains(parts.scheme) ? "wss" : "ws"
        var path = parts.path
        while path.hasSuffix("/") { path.removeLast() }
        if path.isEmpty { path = "/realtime/v1" }
        parts.path = path.hasSuffix("/websocket") ? path : path + "/websocket"
        let own = [URLQueryItem(name: "apikey", value: key), URLQueryItem(name: "vsn", value: "2.0.0")]
        parts.queryItems = (parts.queryItems ?? []) + own
        return parts.url ?? url
    }

    // MARK: Account

    /// Id of the signed-in user, from the token's claim `sub`; nil while no user is signed in, and for the key alone.
    ///
    /// - Complexity: O(*n*), where *n* is the length of the token.
    public var userID: String? { engine.account.token.flatMap(Self.person) }

    /// Signs a user in, or replaces the token of the same user: the new token goes to the server at once. If the token
    /// belongs to another user (by its claim `sub`), the client signs the former user out first.
    public func signIn(token: String) {
        if let former = engine.account.token, let person = Self.person(former), person != Self.person(token) {
            signOut()
        }
        engine.handle(.account(.signedIn(token: token)))
    }

    /// Returns the user of a token; nil if the text is no JSON Web Token. Only the server verifies the token.
    static func person(_ token: String) -> String? {
        let parts = token.split(separator: ".")
        guard parts.count == 3 else { return nil }
        let padded = parts[1].replacing("-", with: "+").replacing("_", with: "/")
        let claims = Data(base64Encoded: padded + String(repeating: "=", count: (4 - padded.count % 4) % 4))
        return claims.flatMap { try? JSONValue(parsing: Array($0)) }?["sub"]?.text
    }

    /// Connects with the rights of the key alone.
    public func signInAnonymously() { engine.handle(.account(.anonymous)) }

    /// Leaves all channels, ends every sequence and forgets all positions. The app receives nothing more for this user.
    public func signOut() { engine.signOut() }

    // MARK: App lifecycle

    /// Delivers the changes that wait for their batch at once. The connection stays open for half a minute.
    public func enterBackground() {
        engine.flush()
        engine.handle(.background)
    }

    /// Resumes at once from the last positions.
    public func enterForeground() { engine.handle(.foreground) }

    /// Tells the client whether there is a network, as `NWPathMonitor` reports it. With a network the client tries to
    /// connect at once; without one it waits.
    public func updateNetwork(isReachable: Bool) { engine.handle(.network(isReachable: isReachable)) }

    // MARK: State

    /// The present state.
    public var state: State { engine.state }

    /// The present state and each later one. A slow consumer receives only the latest.
    public var states: States { States(engine: engine) }
}
