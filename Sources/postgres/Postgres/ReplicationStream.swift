import Bytes
import CPostgres
import Glibc
import System

/// Parameters of START_REPLICATION: slot, position, and options for the output plugin.
public struct StartReplication: Sendable {
    public var slot: String
    /// Requested start position. PostgreSQL starts here or at the slot's confirmed position, whichever is higher.
    public var startLSN: UInt64
    public var options: [(name: String, value: String)]

    public init(slot: String, startLSN: UInt64, options: [(name: String, value: String)]) {
        self.slot = slot
        self.startLSN = startLSN
        self.options = options
    }

    static let name = "START_REPLICATION"

    var command: String {
        let position = String(startLSN >> 32, radix: 16) + "/" + String(startLSN & 0xffff_ffff, radix: 16)
        let list = options.map { Quoted.identifier($0.name) + " " + Quoted.literal($0.value) }.joined(separator: ", ")
        return "\(Self.name) SLOT \(Quoted.identifier(slot)) LOGICAL \(position) (\(list))"
    }
}

/// Quoting of names and values in SQL, for statements that do not allow parameters.
public enum Quoted {
    public static func identifier(_ name: String) -> String { "\"" + doubling(name, "\"") + "\"" }

    /// Quotes a text according to `standard_conforming_strings`, which replication commands always follow.
    public static func literal(_ text: String) -> String { "'" + doubling(text, "'") + "'" }

    /// Doubles each mark in the text, Unicode scalar by scalar. Swift treats a mark with a following combining scalar
    /// as one character, but the server does not.
    private static func doubling(_ text: String, _ mark: Unicode.Scalar) -> String {
        var doubled = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            if scalar == mark { doubled.append(mark) }
            doubled.append(scalar)
        }
        return String(doubled)
    }
}

/// Stream of a replication slot.
///
/// The stream reads bytes from the walsender and returns one CopyData message at a time, borrowed until the next call.
/// It does not interpret messages.
///
/// libpq connects and authenticates. Then the hub reads the socket itself if the connection is not encrypted
/// (`CopyStream`). It reads an encrypted stream through libpq.
@safe
public struct ReplicationStream: ~Copyable {
    private let connection: Connection
    private let isDirect: Bool
    private var direct: CopyStream
    private var held: UnsafeMutablePointer<CChar>?
    /// True if the socket was readable before the last read through libpq.
    private var wasReady = false

    public init(
        _ connection: Connection, _ start: StartReplication, interrupt: Wake? = nil
    ) throws(PostgresError) {
        precondition(connection.purpose == .replication, "only a replication connection can stream")
        self.connection = connection
        isDirect = !connection.isEncrypted
        direct = CopyStream(socket: connection.socket)
        // SAFETY: nothing is lent yet.
        unsafe held = nil
        if isDirect { try beginDirectly(start, interrupt) } else { try begin(start) }
    }

    deinit {
        // SAFETY: libpq's buffer, freed with libpq's own call; nil is allowed.
        unsafe PQfreemem(held)
    }

    private func begin(_ start: StartReplication) throws(PostgresError) {
        // SAFETY: the handle lives with `connection`; the result is cleared on every path.
        let result = unsafe PQexec(connection.handle, start.command)
        defer { unsafe PQclear(result) }
        guard let result = unsafe result, unsafe PQresultStatus(result) == PGRES_COPY_BOTH else {
            if let result = unsafe result { throw unsafe connection.serverError(result, StartReplication.name) }
            throw connection.connectionError(StartReplication.name)
        }
    }

    /// Starts the stream. libpq sends the command; the hub reads the answer and everything that follows.
    private mutating func beginDirectly(_ start: StartReplication, _ interrupt: Wake?) throws(PostgresError) {
        try connection.handOver(sending: start.command)
        while true {
            switch try direct.next() {
            case .begins?: return
            case .refused(var error)?:
                error.operation = StartReplication.name
                throw error
            case .data?, .ends?: throw lost()
            case nil:
                let ready = Poll.wait(socket: connection.socket, interrupt: interrupt, timeoutMilliseconds: -1)
                if ready.interrupt { throw Connection.interrupted(StartReplication.name) }
                try direct.receive()
            }
        }
    }

    /// Returns the next message that has already arrived; nil if there is none.
    @_lifetime(&self)
    public mutating func next() throws(PostgresError) -> RawSpan? {
        if !isDirect { return try nextOfLibrary() }
        switch try direct.next() {
        case .data(let message)?: return message
        case .refused(var error)?:
            error.isConnectionLost = true
            throw error
        case .begins?, .ends?: throw lost()
        case nil: return nil
        }
    }

    @_lifetime(&self)
    private mutating func nextOfLibrary() throws(PostgresError) -> RawSpan? {
        // SAFETY: the buffer that was lent before is given back here; the span over the new one cannot outlive the
        // borrow of `self`, which ends before the next call.
        unsafe PQfreemem(held)
        unsafe held = nil
        let length = unsafe PQgetCopyData(connection.handle, &held, 1)
        if length > 0, let start = unsafe held {
            let span = unsafe RawSpan(_unsafeStart: UnsafeRawPointer(start), byteCount: Int(length))
            return unsafe _overrideLifetime(span, mutating: &self)
        }
        if length == 0 { return nil }
        throw ending()
    }

    /// Reads the available bytes from the socket. The caller calls this after `next` has returned nil.
    public mutating func receive() throws(PostgresError) {
        if isDirect { return try direct.receive() }
        wasReady = Poll.wait(for: connection.socket, timeoutMilliseconds: 0)
        // SAFETY: the handle lives.
        guard unsafe PQconsumeInput(connection.handle) == 1 else { throw connection.connectionError("stream") }
    }

    /// True if more bytes may be available, in the socket or already decrypted. A TLS record may be larger than one
    /// read of libpq, and then the socket does not show the rest. Therefore one more read follows each read.
    public var hasMore: Bool {
        isDirect ? direct.mayHaveMore : wasReady || Poll.wait(for: connection.socket, timeoutMilliseconds: 0)
    }

    /// Waits until data arrives, `interrupt` is signalled, or the time has passed.
    public func wait(interrupt: Wake, timeoutMilliseconds: Int32) -> Poll.Ready {
        Poll.wait(socket: connection.socket, interrupt: interrupt, timeoutMilliseconds: timeoutMilliseconds)
    }

    /// Returns the reason for which the stream ended: the server's error, or a lost connection.
    private func ending() -> PostgresError {
        // SAFETY: the handle lives; the result is cleared here.
        guard let result = unsafe PQgetResult(connection.handle) else { return lost() }
        defer { unsafe PQclear(result) }
        // A server that shuts down ends the stream without an error.
        guard unsafe PQresultStatus(result) == PGRES_FATAL_ERROR else { return lost() }
        var error = unsafe connection.serverError(result, "stream")
        error.isConnectionLost = true
        return error
    }

    private func lost() -> PostgresError {
        PostgresError(operation: "stream", message: "the server ended the stream", isConnectionLost: true)
    }
}
