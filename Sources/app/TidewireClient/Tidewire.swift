import Foundation

/// A client of a Tidewire hub, or of another server with the same protocol. All subscriptions share one connection.
/// After a reconnect the client delivers the changes that it missed.
///
/// ```swift
/// let tidewire = Tidewire(url: URL(string: "https://hub.example.com")!, key: anonKey, token: session.accessToken)
///
/// for await batch in tidewire.live(Expense.self, where: \.ownerID == me, after: store.position) {
///     try store.save(batch.changes, at: batch.position)      // both in one transaction of the app's own
/// }
/// ```
///
/// Cancelling the task ends the subscription. The app need not keep any object for a subscription.
public final class Tidewire: Sendable {
    let engine: Engine

    /// Creates a client. It connects when the first query runs or the first room is joined.
    ///
    /// - Parameters:
    ///   - url: URL of the hub, with or without `/realtime/v1`.
    ///   - key: public key of the project.
    ///   - token: token of the signed-in user; nil while no user is signed in.
    ///   - storage: storage for positions that the client saves for the app.
    ///   - maximumWaitingChanges: maximum number of changes of one query that wait for the app. The client drops
    ///     further changes, and asks the server for them again when the app has taken the waiting ones.
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

    /// Id of the signed-in user, from the claim `sub` of the token. Nil if no user is signed in, or if only the key is
    /// used.
    ///
    /// - Complexity: O(*n*), where *n* is the length of the token.
    public var userID: String? { engine.account.token.flatMap(Self.person) }

    /// Signs a user in, or replaces the token of the same user. The client sends the new token to the server
    /// immediately. If the token belongs to another user (by its claim `sub`), the client first signs the earlier user
    /// out.
    public func signIn(token: String) {
        if let former = engine.account.token, let person = Self.person(former), person != Self.person(token) {
            signOut()
        }
        engine.handle(.account(.signedIn(token: token)))
    }

    /// Returns the user id in a token; nil if the text is not a JSON Web Token. Does not verify the token: only the
    /// server does.
    static func person(_ token: String) -> String? {
        let parts = token.split(separator: ".")
        guard parts.count == 3 else { return nil }
        let padded = parts[1].replacing("-", with: "+").replacing("_", with: "/")
        let claims = Data(base64Encoded: padded + String(repeating: "=", count: (4 - padded.count % 4) % 4))
        return claims.flatMap { try? JSONValue(parsing: Array($0)) }?["sub"]?.text
    }

    /// Uses only the project's key, without a user: the server grants the rights of the role in the key.
    public func signInAnonymously() { engine.handle(.account(.anonymous)) }

    /// Signs the user out: leaves all channels, ends all sequences and forgets all positions. The app receives nothing
    /// more for this user.
    public func signOut() { engine.signOut() }

    // MARK: App lifecycle

    /// Delivers all received changes immediately, without waiting for their batches. Call it when the app enters the
    /// background. The connection stays open for half a minute.
    public func enterBackground() {
        engine.flush()
        engine.handle(.background)
    }

    /// Reconnects if necessary, and resumes from the last positions. Call it when the app returns to the foreground.
    public func enterForeground() { engine.handle(.foreground) }

    /// Reports whether the device has a network, as `NWPathMonitor` knows it. With a network the client tries to
    /// connect immediately; without a network it waits.
    public func updateNetwork(isReachable: Bool) { engine.handle(.network(isReachable: isReachable)) }

    // MARK: State

    /// The present state.
    public var state: State { engine.state }

    /// The sequence of states, beginning with the present one. A slow consumer receives only the newest state.
    public var states: States { States(engine: engine) }
}
