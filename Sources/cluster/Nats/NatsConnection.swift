import Bytes
import CNats
import Diagnostics
import Synchronization
import System

/// Connection to a group of NATS servers through libnats.
///
/// The library has threads of its own. They put what arrives into inboxes and do nothing else. After a broken connection
/// the library connects again, to another server if need be, and subscribes again; what was published meanwhile and not
/// sent is refused, not kept. Any thread may use the connection.
@safe
public final class NatsConnection: Sendable {
    private let library: NatsLibrary
    // SAFETY: the library's calls on a connection may come from any thread, and the handle lives as long as this object.
    private nonisolated(unsafe) let handle: OpaquePointer
    private let events: Events

    /// Connects. Blocks until a server has accepted the connection, or none has within the time.
    ///
    /// - Parameter ring: called whenever the connection is lost or made again.
    public init(
        _ settings: NatsSettings, timeout: Duration = .seconds(5), ring: @escaping @Sendable () -> Void
    ) throws(NatsError) {
        let library = try NatsLibrary.load()
        let events = Events(ring: ring)
        let options = try NatsOptions(library, settings, events, timeout)
        var made: OpaquePointer?
        // SAFETY: the library clones the options; the handle is destroyed once, in `deinit`.
        let status = unsafe library.functions.connect(&made, options.handle)
        guard status == NATS_OK, let made = unsafe made else {
            // Without a connection, no callback comes that would release them.
            events.release()
            try library.check(status, "connect")
            throw NatsError(operation: "connect", message: "no connection")
        }
        self.library = library
        self.events = events
        unsafe handle = made
    }

    deinit {
        // SAFETY: the handle is this object's own. The last callback, of a closed connection, releases the events.
        unsafe library.functions.destroy(handle)
    }

    public var isConnected: Bool {
        // SAFETY: the handle lives as long as this object.
        unsafe library.functions.status(handle) == NATS_CONN_STATUS_CONNECTED
    }

    /// Address of the server to which the connection leads now; empty while there is none.
    public var server: String {
        // SAFETY: the library writes at most the size of the room, with a zero at the end.
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 512) { room in
            guard let start = room.baseAddress else { return "" }
            guard unsafe library.functions.connected_url(handle, start, room.count) == NATS_OK else { return "" }
            return unsafe String(cString: start)
        }
    }

    /// Publishes a message. Returns when the library has it; it may be lost with the connection.
    public func publish(
        _ payload: RawSpan, to subject: String, reply: String? = nil, headers: [(name: String, value: String)] = []
    ) throws(NatsError) {
        var message: OpaquePointer?
        // SAFETY: the library copies all bytes before the call returns.
        let status = unsafe payload.withUnsafeBytes { bytes in
            unsafe library.functions.message_create(
                &message, subject, reply, bytes.baseAddress?.assumingMemoryBound(to: CChar.self),
                Int32(bytes.count))
        }
        try library.check(status, "publish")
        // SAFETY: the message is this call's own, and the library copies what it is given.
        defer { unsafe library.functions.message_destroy(message) }
        for header in headers {
            unsafe try library.check(library.functions.header_set(message, header.name, header.value), "publish")
        }
        unsafe try library.check(library.functions.publish(handle, message), "publish")
    }

    /// Waits until the server has everything that was published, for a limited time.
    public func flush() {
        // SAFETY: the handle lives as long as this object.
        _ = unsafe library.functions.flush(handle, 1_000)
    }

    /// Subscribes to a subject, which may contain `*` and `>`. Letters go to the inbox as long as the subscription
    /// lives.
    public func subscribe(_ subject: String, to inbox: NatsInbox) throws(NatsError) -> NatsSubscription {
        // SAFETY: the handle lives as long as this object, and the library's subscription holds the connection.
        unsafe try NatsSubscription(library, handle, subject, inbox)
    }
}

/// Events of a connection, which the library's threads report.
final class Events: Sendable {
    private let ring: @Sendable () -> Void

    init(ring: @escaping @Sendable () -> Void) { self.ring = ring }

    /// Returns a pointer for the library, which holds the events until `release`.
    // SAFETY: `release` is called once for it.
    func retained() -> UnsafeMutableRawPointer { unsafe Unmanaged.passRetained(self).toOpaque() }

    // SAFETY: called once, for the reference that `retained` gave to the library.
    func release() { unsafe Unmanaged.passUnretained(self).release() }

    func changed() { ring() }
}

/// Subscription of a connection. It ends when it is released.
@safe
public final class NatsSubscription: Sendable {
    private let library: NatsLibrary
    // SAFETY: only `init` and `deinit` use the handle.
    private nonisolated(unsafe) let handle: OpaquePointer

    fileprivate init(
        _ library: NatsLibrary, _ connection: OpaquePointer, _ subject: String, _ inbox: NatsInbox
    ) throws(NatsError) {
        let target = Target(library: library, inbox: inbox)
        // SAFETY: the library's completion releases the target, or this call does if there is no subscription.
        let closure = unsafe Unmanaged.passRetained(target).toOpaque()
        var made: OpaquePointer?
        // SAFETY: the library gives `closure` to the handler until it calls the completion, which releases it.
        let status = unsafe library.functions.subscribe(
            &made, connection, subject,
            { _, _, message, closure in
                guard let message = unsafe message, let closure = unsafe closure else { return }
                unsafe Unmanaged<Target>.fromOpaque(closure).takeUnretainedValue().take(message)
            }, closure)
        guard status == NATS_OK, let made = unsafe made else {
            unsafe Unmanaged<Target>.fromOpaque(closure).release()
            try library.check(status, "subscribe to \(subject)")
            throw NatsError(operation: "subscribe to \(subject)", message: "no subscription")
        }
        self.library = library
        unsafe handle = made
        // The inbox has the limits; the library's own queue has none.
        _ = unsafe library.functions.pending_limits(made, -1, -1)
        _ = unsafe library.functions.subscription_on_complete(
            made,
            { closure in
                if let closure = unsafe closure { unsafe Unmanaged<Target>.fromOpaque(closure).release() }
            }, closure)
    }

    deinit {
        // SAFETY: the handle is this object's own. The library frees it when the last callback has returned.
        unsafe library.functions.subscription_destroy(handle)
    }

    /// Inbox of a subscription, as the library's threads see it.
    private final class Target: Sendable {
        let library: NatsLibrary
        let inbox: NatsInbox

        init(library: NatsLibrary, inbox: NatsInbox) {
            self.library = library
            self.inbox = inbox
        }

        /// Copies the message into the inbox, and frees it.
        func take(_ message: OpaquePointer) {
            let functions = library.functions
            // SAFETY: the message is ours until it is destroyed, and everything is copied before.
            defer { unsafe functions.message_destroy(message) }
            let count = Int(unsafe functions.message_length(message))
            let payload = unsafe functions.message_data(message).map { start in
                unsafe [UInt8](UnsafeRawBufferPointer(start: start, count: count))
            }
            var status = 0
            var text: UnsafePointer<CChar>?
            if count == 0, unsafe functions.header_get(message, "Status", &text) == NATS_OK, let text = unsafe text {
                status = unsafe Int(String(cString: text)) ?? 0
            }
            inbox.add(
                NatsLetter(
                    subject: unsafe functions.message_subject(message).map { unsafe String(cString: $0) } ?? "",
                    reply: unsafe functions.message_reply(message).map { unsafe String(cString: $0) } ?? "",
                    status: status, payload: payload ?? []))
        }
    }
}

/// Options of a connection, in the library's form.
@safe
private final class NatsOptions {
    let handle: OpaquePointer
    private let library: NatsLibrary

    init(
        _ library: NatsLibrary, _ settings: NatsSettings, _ events: Events, _ timeout: Duration
    ) throws(NatsError) {
        self.library = library
        var made: OpaquePointer?
        // SAFETY: the handle is destroyed once, in `deinit`; the library copies every text.
        unsafe try library.check(library.functions.options_create(&made), "make options")
        guard let made = unsafe made else { throw NatsError(operation: "make options", message: "out of memory") }
        unsafe handle = made
        try address(settings, timeout)
        try identify(settings)
        try secure(settings)
        try listen(events)
    }

    deinit {
        // SAFETY: the handle is this object's own.
        unsafe library.functions.options_destroy(handle)
    }

    private func set(_ what: String, _ status: natsStatus) throws(NatsError) { try library.check(status, what) }

    private func address(_ settings: NatsSettings, _ timeout: Duration) throws(NatsError) {
        let list = CStringArray(settings.servers)
        let functions = library.functions
        // SAFETY: the library copies the list; `list` lives through the call.
        let status = withExtendedLifetime(list) {
            unsafe functions.options_servers(
                handle, UnsafeMutablePointer(mutating: list.constant), Int32(settings.servers.count))
        }
        try set("read the servers' addresses", status)
        unsafe try set("name the connection", functions.options_name(handle, settings.name))
        unsafe try set("set the timeout", functions.options_timeout(handle, timeout.wholeMilliseconds64))
        // A server that does not answer for three seconds is left.
        unsafe try set("set the pings", functions.options_ping(handle, 1_000))
        unsafe try set("set the pings", functions.options_pings_out(handle, 2))
        unsafe try set("set the reconnects", functions.options_reconnects(handle, -1))
        unsafe try set("set the reconnects", functions.options_reconnect_wait(handle, 100))
        unsafe try set("set the reconnects", functions.options_reconnect_jitter(handle, 50, 50))
        // What cannot be sent now is refused, so that the caller knows.
        unsafe try set("set the buffers", functions.options_reconnect_buffer(handle, 0))
        unsafe try set("set the buffers", functions.options_send_asap(handle, true))
        unsafe try set("set the deadline", functions.options_write_deadline(handle, 2_000))
    }

    private func identify(_ settings: NatsSettings) throws(NatsError) {
        let functions = library.functions
        if let user = settings.user {
            unsafe try set("set the user", functions.options_user(handle, user, settings.password ?? ""))
        }
        if let token = settings.token { unsafe try set("set the token", functions.options_token(handle, token)) }
        if let file = settings.credentialsFile {
            unsafe try set("read the credentials \(file)", functions.options_credentials(handle, file, nil))
        }
        if let nkey = settings.nkey {
            unsafe try set(
                "read the nkey \(nkey.seedFile)", functions.options_nkey(handle, nkey.publicKey, nkey.seedFile))
        }
    }

    private func secure(_ settings: NatsSettings) throws(NatsError) {
        guard settings.isSecure else { return }
        let functions = library.functions
        // SAFETY: the handle is this object's own; the library copies every text.
        unsafe try set("use TLS", functions.options_secure(handle, true))
        if let file = settings.authoritiesFile {
            // SAFETY: as above.
            unsafe try set("read the authorities \(file)", functions.options_authorities(handle, file))
        }
        if let certificate = settings.certificate {
            // SAFETY: as above.
            unsafe try set(
                "read the certificate \(certificate.chainFile)",
                functions.options_certificate(handle, certificate.chainFile, certificate.keyFile))
        }
    }

    private func listen(_ events: Events) throws(NatsError) {
        let functions = library.functions
        // SAFETY: the pointer is valid until the callback of the closed connection, the last one, has released it.
        let closure = unsafe events.retained()
        unsafe try set(
            "listen",
            functions.options_on_disconnect(
                handle, { _, closure in unsafe Events.of(closure)?.changed() }, closure))
        unsafe try set(
            "listen",
            functions.options_on_reconnect(
                handle, { _, closure in unsafe Events.of(closure)?.changed() }, closure))
        unsafe try set(
            "listen",
            functions.options_on_close(handle, { _, closure in unsafe Events.of(closure)?.release() }, closure))
        // Without a handler of ours, the library writes errors to the standard error output.
        unsafe try set("listen", functions.options_on_error(handle, { _, _, _, _ in }, nil))
    }
}

extension Events {
    fileprivate static func of(_ closure: UnsafeMutableRawPointer?) -> Events? {
        // SAFETY: the closure is the events of the connection, which it holds as long as callbacks come.
        unsafe closure.map { unsafe Unmanaged<Events>.fromOpaque($0).takeUnretainedValue() }
    }
}

extension Duration {
    fileprivate var wholeMilliseconds64: Int64 { Int64(wholeMilliseconds) }
}
