import Foundation

/// A client of a Tidewire hub, or of any server of the same protocol: one connection, whatever is asked for on it, and what was
/// missed in between.
///
/// ```swift
/// let tidewire = Tidewire(url: URL(string: "https://hub.example.com")!, key: anonKey, token: session.accessToken)
///
/// for await batch in tidewire.live(Expense.self, where: \.ownerID == me, after: store.position) {
///     try store.save(batch.changes, at: batch.position)      // both in one transaction of the app's own
/// }
/// ```
///
/// Cancelling the task ends the subscription. There is nothing to retain.
public final class Tidewire: Sendable {
    let engine: Engine

    /// - Parameters:
    ///   - url: the hub's address, or its `…/realtime/v1`.
    ///   - key: the project's public key.
    ///   - token: of the person who is signed in; nil while nobody is.
    ///   - storage: where positions are kept that the app does not keep itself.
    ///   - maximumWaitingChanges: so many of one query wait for the app to take them. Beyond that they are dropped, and asked for
    ///     again when it does.
    public init(
        url: URL, key: String, token: String? = nil, storage: any TidewireStorage = MemoryStorage(),
        transport: any Transport = systemTransport(), clock: any ClientClock = SystemClock(),
        maximumWaitingChanges: Int = 10_000, seed: UInt64 = .random(in: .min ... .max)
    ) {
        engine = Engine(
            TransportRequest(url: Self.address(url, key)),
            account: token.map { .signedIn(token: $0) } ?? .signedOut, transport: transport, clock: clock,
            storage: storage, maximumWaitingChanges: maximumWaitingChanges, seed: seed)
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

    // MARK: Who

    /// Who is signed in, as the token says it (its claim `sub`); nil while nobody is, and for the key alone.
    public var user: String? { engine.account.token.flatMap(Self.person) }

    /// Signs in, or goes on with a new token of the same person: it goes to the server at once. Where the token is another
    /// person's (its claim `sub`), the former is signed out first.
    public func signIn(token: String) {
        if let former = engine.account.token, let person = Self.person(former), person != Self.person(token) {
            signOut()
        }
        engine.handle(.account(.signedIn(token: token)))
    }

    /// Whose token it is; it is the server that checks it. Nil for what is no JSON Web Token.
    static func person(_ token: String) -> String? {
        let parts = token.split(separator: ".")
        guard parts.count == 3 else { return nil }
        let padded = parts[1].replacing("-", with: "+").replacing("_", with: "/")
        let claims = Data(base64Encoded: padded + String(repeating: "=", count: (4 - padded.count % 4) % 4))
        return claims.flatMap { try? JSONValue(parsing: Array($0)) }?["sub"]?.text
    }

    /// With the rights of the key alone.
    public func signInAnonymously() { engine.handle(.account(.anonymous)) }

    /// Leaves everything, ends every sequence and forgets all positions: nothing of this person is told afterwards.
    public func signOut() { engine.signOut() }

    // MARK: The app's life

    /// What waits for its batch is handed over; the connection stays for half a minute.
    public func enterBackground() {
        engine.flush()
        engine.handle(.background)
    }

    /// Goes on where it was, at once.
    public func enterForeground() { engine.handle(.foreground) }

    public func networkChanged(isReachable: Bool) { engine.handle(.network(isReachable: isReachable)) }

    // MARK: How it is

    public var state: ClientState { engine.state }

    /// The state now, and each that follows; who is slow sees the latest.
    public var states: ClientStates { ClientStates(engine: engine) }
}

/// The states of a client.
public struct ClientStates: AsyncSequence, Sendable {
    let engine: Engine

    public func makeAsyncIterator() -> Iterator { Iterator(engine) }

    public final class Iterator: AsyncIteratorProtocol {
        private let engine: Engine
        private let number: Int
        private let mailbox: Mailbox<ClientState>

        init(_ engine: Engine) {
            self.engine = engine
            (number, mailbox) = engine.watch()
        }

        deinit { engine.unwatch(number) }

        public func next() async -> ClientState? { await mailbox.take() }
    }
}
