import Diagnostics
import System

/// Settings of the socket server: addresses, TLS, and the limits of each connection.
public struct SocketSettings: Sendable {
    /// Method of passing output to the kernel.
    public enum Backend: String, Sendable, CaseIterable {
        /// Uses io_uring if the kernel allows it, otherwise epoll.
        case automatic
        case epoll
        /// Uses io_uring. Starting the server fails if the kernel does not allow it.
        case ring
    }

    /// Paths of two PEM files: the certificate with its chain, and its private key.
    public struct TLS: Sendable {
        public var certificate: String
        public var key: String

        public init(certificate: String, key: String) {
            self.certificate = certificate
            self.key = key
        }
    }

    /// Host name or numeric address; `*` means every address of the machine.
    public var host: String
    /// Port; 0 means any free one.
    public var port: UInt16
    public var loopCount: Int
    public var tls: TLS?
    public var backend = Backend.automatic

    /// True if each loop gets its own descriptor table, and so the whole limit of open files. Of the process's open
    /// descriptors the loop then sees only 0–2 and the loops' bells.
    public var ownDescriptorTables = false

    public var listenBacklog = Limits.listenBacklog
    public var maximumConnections = Limits.maximumConnectionsPerLoop
    public var idleLimit: Duration? = Limits.socketIdleLimit
    public var handshakeLimit = Limits.handshakeLimit
    /// Largest number of bytes that the application may leave unconsumed.
    public var receiveBytes = Limits.receiveBufferBytes
    /// Memory budget for the incomplete messages of all connections together.
    public var inputBudget = InputBudget(Limits.unfinishedInputBytes)
    /// Time that a client has to complete a message that it has begun.
    public var unfinishedLimit = Limits.unfinishedInputLimit
    public var outboxBytes = Limits.outboxBytes
    /// Longest time for which a blocked connection may take no bytes.
    public var outboxAge = Limits.outboxAge
    /// Size of a backlog above which the loop tells the application, so that it can postpone output.
    var filledBytes: Int { min(Limits.filledBytes, outboxBytes / 8) }
    /// Largest amount of memory that all blocked connections of one loop may hold together.
    public var outboxTotalBytes = Limits.outboxTotalBytes
    /// Value for `SO_SNDBUF`; nil leaves the size of the buffer to the kernel, which lets it grow.
    public var sendBuffer: Int? = Limits.socketSendBufferBytes
    public var time: any TimeSource = KernelTime()

    public init(host: String, port: UInt16, loopCount: Int, tls: TLS? = nil) {
        self.host = host
        self.port = port
        self.loopCount = loopCount
        self.tls = tls
    }
}
