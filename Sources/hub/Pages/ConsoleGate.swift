import Bytes
import Crypto
import Diagnostics
import Settings
import Synchronization
import System
import WebSocket

/// Door of the web console: its files, signing in and out, and the check of every request that the pages send.
///
/// A browser may send the cookie with requests that a page of somebody else caused. So each request must also come from
/// a page of the same origin, by its header `Sec-Fetch-Site`; and each request that is not a GET must have an equal
/// `Origin` and a body in JSON.
public final class ConsoleGate: Sendable {
    /// Outcome of a request below `/console`.
    public enum Outcome: Sendable {
        case response(HTTPResponse)
        /// Request to the operators' API, of this operator. The answer must have the headers. `isOver` returns true once
        /// the session has ended; a stream must end then.
        case operation(Operator, headers: [HTTPHeader], isOver: @Sendable () -> Bool)
    }

    private let access: ConsoleAccess
    private let operators: OperatorGate
    private let key: [UInt8]
    private let version: String
    private let signedOut: SignedOut
    private let limit = SignInLimit()

    static let cookie = "__Host-tidewire"
    /// Name of the operator who uses the console on the hub's machine without a token.
    static let localSubject = "console on this machine"

    /// Creates a gate; nil if nobody may use the console.
    public init?(
        _ access: ConsoleAccess, operators: OperatorGate, key: [UInt8], version: String,
        in directory: (any StorageDirectory)?, at now: Int64
    ) {
        guard access == .loopback || access == .on && operators.hasOperators else { return nil }
        precondition(key.count >= SHA256.digestBytes, "a signature needs a key")
        (self.access, self.operators, self.key, self.version) = (access, operators, key, version)
        signedOut = SignedOut(in: directory, at: now)
    }

    /// Returns a gate for everybody on this machine, and nobody else, without tokens.
    public static func local(version: String) -> ConsoleGate? {
        ConsoleGate(
            .loopback, operators: .nobody, key: Secrets.randomBytes(SHA256.digestBytes), version: version, in: nil,
            at: 0)
    }

    /// Sets the function that is called when a session was ended before its time. It must make a thread call
    /// `keepSignedOut`.
    public func callOnSignOut(_ function: @escaping @Sendable () -> Void) { signedOut.callOnChange(function) }

    /// Writes to the disk which sessions were ended before their time, so that they stay ended after a restart. Returns
    /// false if that failed. Only one thread may call it.
    public func keepSignedOut() -> Bool { signedOut.write() }

    /// Returns the outcome of a request whose path begins with `/console`.
    public func outcome(_ request: HTTPRequest, from peer: SocketAddress, at now: Int64) -> Outcome {
        let path = Array(request.pathSegments.dropFirst())
        switch path.first {
        case "api": return operation(request, from: peer, at: now)
        case "session": return .response(path.count == 1 ? session(request, from: peer, at: now) : Self.unknown)
        default:
            guard request.method == "GET" || request.isHead else {
                var refusal = HTTPResponse.message(.methodNotAllowed, "only GET is answered here")
                refusal.headers.append(HTTPHeader("allow", "GET, HEAD"))
                return .response(refusal)
            }
            return .response(file(path, request))
        }
    }

    // MARK: Files

    private func file(_ path: [String], _ request: HTTPRequest) -> HTTPResponse {
        switch path {
        case []: HTTPResponse(.found, headers: [HTTPHeader("location", "/console/")])
        case [""]: Self.answer(PageFiles.first, request, isImmutable: false)
        case [PageFiles.digest, path.last ?? ""] where path.last != PageFiles.first.name:
            PageFiles.all[path.last ?? ""].map { Self.answer($0, request, isImmutable: true) } ?? Self.unknown
        default: Self.unknown
        }
    }

    private static let unknown = HTTPResponse.message(.notFound, "the console has no such page")

    private static func answer(_ file: PageFile, _ request: HTTPRequest, isImmutable: Bool) -> HTTPResponse {
        var response = HTTPResponse(.ok, contentType: file.contentType, body: file.bytes)
        let takesGzip = request.header("accept-encoding", hasToken: "gzip")
        if takesGzip, let compressed = file.compressed {
            response.body = compressed
            response.headers.append(HTTPHeader("content-encoding", "gzip"))
        }
        response.headers += [
            HTTPHeader("vary", "accept-encoding"),
            HTTPHeader("cache-control", isImmutable ? "public, max-age=31536000, immutable" : "no-cache"),
        ]
        response.headers += headers
        return response
    }

    /// Headers of every file. No script of somebody else can run, no text becomes markup, and no other page can show
    /// the console in a frame.
    static let headers = [
        HTTPHeader(
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; "
                + "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                + "require-trusted-types-for 'script'; trusted-types 'none'"),
        HTTPHeader("x-content-type-options", "nosniff"),
        HTTPHeader("x-frame-options", "DENY"),
        HTTPHeader("referrer-policy", "no-referrer"),
        HTTPHeader("cross-origin-opener-policy", "same-origin"),
        HTTPHeader("cross-origin-resource-policy", "same-origin"),
    ]

    // MARK: Sessions

    /// Answers about the browser's session: GET tells who is signed in, POST with a token signs in, DELETE signs out.
    private func session(_ request: HTTPRequest, from peer: SocketAddress, at now: Int64) -> HTTPResponse {
        if let refusal = refusal(request) { return refusal }
        switch request.method {
        case "GET", "HEAD":
            guard let found = found(request, from: peer, at: now) else { return Self.told(nil, version) }
            return Self.told(found, version)
        case "POST": return signIn(request, from: peer, at: now)
        case "DELETE": return signOut(request, at: now)
        default:
            var refusal = HTTPResponse.message(.methodNotAllowed, "a session is read, begun and ended")
            refusal.headers.append(HTTPHeader("allow", "GET, HEAD, POST, DELETE"))
            return refusal
        }
    }

    private func signIn(_ request: HTTPRequest, from peer: SocketAddress, at now: Int64) -> HTTPResponse {
        if let delay = limit.delay(peer, at: now) {
            var refusal = HTTPResponse.message(
                .tooManyRequests, "too many sign-ins have failed: try again in \(delay) seconds")
            refusal.headers.append(HTTPHeader("retry-after", "\(delay)"))
            return refusal
        }
        switch operators.admission(request, at: now) {
        case .admitted(let given):
            let token = OperatorGate.digest(request) ?? []
            let session = ConsoleSession(given, token: token, at: now)
            Log.shared.info("an operator has signed in to the console", [.user(given.subject), .address(peer)])
            var response = Self.told(Found(operator: session.operator, session: session), version)
            response.headers.append(setting(session, at: now))
            return response
        case .noRole(let reason):
            limit.fail(peer, at: now)
            return .message(.forbidden, reason)
        case .refused:
            limit.fail(peer, at: now)
            Log.shared.warning("a sign-in to the console was refused", [.address(peer)])
            return .message(
                .forbidden,
                "the token does not admit you: it has another signature, has expired, or has no expiry")
        }
    }

    private func signOut(_ request: HTTPRequest, at now: Int64) -> HTTPResponse {
        if let session = Self.session(in: request, key), !session.hasEnded(at: now) {
            Log.shared.info("an operator has signed out of the console", [.user(session.subject)])
            signedOut.add(session, at: now)
        }
        var response = HTTPResponse(.noContent, headers: Self.unstored)
        let attributes = "; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0"
        response.headers.append(HTTPHeader("set-cookie", Self.cookie + "=" + attributes))
        return response
    }

    private func setting(_ session: ConsoleSession, at now: Int64) -> HTTPHeader {
        let attributes = "; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=\(max(0, session.end - now))"
        return HTTPHeader("set-cookie", Self.cookie + "=" + session.signed(with: key) + attributes)
    }

    private static let unstored = [HTTPHeader("cache-control", "no-store")]

    private static func told(_ found: Found?, _ version: String) -> HTTPResponse {
        var writer = ByteWriter()
        writer.append("{\"signed_in\":\(found != nil),\"version\":")
        JSONText.appendString(version, to: &writer)
        if let found {
            writer.append(",\"subject\":")
            JSONText.appendString(found.operator.subject, to: &writer)
            writer.append(",\"role\":\"\(found.operator.role.rawValue)\",\"by_token\":\(found.session != nil)")
            if let session = found.session {
                writer.append(",\"ends\":\(session.end),\"idle_seconds\":\(ConsoleSession.idle)")
            }
        }
        writer.append("}")
        var response = HTTPResponse.json(.ok, writer.copied())
        response.headers += unstored
        return response
    }

    // MARK: Requests of the pages

    /// Operator who sent a request; with the session, unless no token was needed.
    private struct Found {
        let `operator`: Operator
        let session: ConsoleSession?
    }

    private func operation(_ request: HTTPRequest, from peer: SocketAddress, at now: Int64) -> Outcome {
        if let refusal = refusal(request) { return .response(refusal) }
        guard let found = found(request, from: peer, at: now) else {
            return .response(.message(.unauthorized, "sign in first: the session has ended, or there is none"))
        }
        guard let session = found.session else { return .operation(found.operator, headers: [], isOver: { false }) }
        var headers: [HTTPHeader] = []
        if now - session.seen >= ConsoleSession.renewal {
            var renewed = session
            renewed.seen = now
            headers.append(setting(renewed, at: now))
        }
        return .operation(
            found.operator, headers: headers,
            isOver: { [signedOut] in
                signedOut.contains(session) || Clock.unixMicroseconds() / 1_000_000 >= session.end
            })
    }

    private func found(_ request: HTTPRequest, from peer: SocketAddress, at now: Int64) -> Found? {
        if let session = Self.session(in: request, key), !session.hasEnded(at: now), !signedOut.contains(session),
            !operators.isWithdrawn(digest: session.token)
        {
            return Found(operator: session.operator, session: session)
        }
        guard access == .loopback, peer.isLoopback, Self.isDirect(request) else { return nil }
        return Found(operator: Operator(subject: Self.localSubject, role: .admin), session: nil)
    }

    private static func session(in request: HTTPRequest, _ key: [UInt8]) -> ConsoleSession? {
        let cookies = request.header("cookie")?.split(separator: ";").map { $0.drop { $0 == " " } } ?? []
        let values = cookies.filter { $0.hasPrefix(cookie + "=") }.map { String($0.dropFirst(cookie.count + 1)) }
        // A browser has one cookie with this prefix of a name. More than one was not written by the hub.
        guard values.count == 1 else { return nil }
        return ConsoleSession(signed: values[0], with: key)
    }

    /// Headers that proxies add. Behind a proxy on the same machine, every client has a loopback address.
    private static let ofProxies = ["x-forwarded-for", "x-real-ip", "forwarded", "via", "x-forwarded-host"]

    /// True if the request came without a proxy, for a host name that cannot belong to anyone else. A page of somebody
    /// else may reach this machine by a name of its own (DNS rebinding).
    private static func isDirect(_ request: HTTPRequest) -> Bool {
        guard let host = request.host?.text.lowercased(), !ofProxies.contains(where: { request.header($0) != nil })
        else { return false }
        let name = host.hasPrefix("[") ? String(host.prefix { $0 != "]" }) + "]" : String(host.prefix { $0 != ":" })
        return ["127.0.0.1", "localhost", "[::1]"].contains(name)
    }

    /// Returns the refusal of a request that a page of another origin may have caused; nil if no such page can have.
    private func refusal(_ request: HTTPRequest) -> HTTPResponse? {
        guard request.header("sec-fetch-site") == "same-origin" else {
            return .message(.forbidden, "only pages of the console may ask this")
        }
        if request.method == "GET" || request.isHead { return nil }
        guard let host = request.host?.text, let origin = request.header("origin"),
            origin == "https://\(host)" || origin == "http://\(host)"
        else {
            return .message(.forbidden, "only pages of the console may ask this: the origin is another")
        }
        let type = request.header("content-type")?.prefix { $0 != ";" } ?? ""
        guard request.body == .none || type == "application/json" else {
            return .message(.unsupportedMediaType, "the body must be JSON")
        }
        return nil
    }
}
