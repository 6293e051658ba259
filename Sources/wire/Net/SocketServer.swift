import Crypto
import Diagnostics
import Synchronization
import System

/// Index of a loop, with the commands that other threads may give to it.
final class LoopControl: Sendable {
    let index: Int
    let bell: Wake
    private let stops = Atomic<Bool>(false)
    private let stopsAccepting = Atomic<Bool>(false)

    init(index: Int) throws(SystemError) {
        self.index = index
        bell = try Wake(inEveryTable: true)
    }

    var isStopping: Bool { stops.load(ordering: .acquiring) }
    var isDoneAccepting: Bool { stopsAccepting.load(ordering: .acquiring) }

    func stop() {
        stops.store(true, ordering: .releasing)
        bell.ring()
    }

    func stopAccepting() {
        stopsAccepting.store(true, ordering: .releasing)
        bell.ring()
    }
}

/// All socket loops together: starts their threads, gives them commands, and ends them. Not used for each message.
///
/// An application must not hold the last reference to its server, because its release waits for the loops' threads.
public final class SocketServer: Sendable {
    public let addresses: [SocketAddress]
    private let controls: [LoopControl]
    private let tls: TLSSource?
    private let threads: Mutex<[BackgroundThread]>

    /// Binds the addresses, starts the threads and returns when all of them listen. Port 0 means any free port, the
    /// same one for all loops.
    public init(
        _ settings: SocketSettings, metrics: ProcessMetrics,
        application: @escaping @Sendable (Int) -> any SocketApplication
    ) throws {
        precondition(settings.loopCount > 0, "without a loop nobody is served")
        var controls: [LoopControl] = []
        for index in 0..<settings.loopCount { controls.append(try LoopControl(index: index)) }
        tls = try settings.tls.map { paths throws(TLSConfigurationError) in try TLSSource(paths) }
        let launch = LoopLaunch(settings, controls, tls, metrics, application)
        var addresses = try SocketServer.addresses(for: settings)
        var threads: [BackgroundThread] = []
        do {
            for index in 0..<settings.loopCount {
                let (thread, bound) = try launch.start(index, on: addresses)
                threads.append(thread)
                addresses = bound
            }
        } catch {
            SocketServer.end(controls, threads)
            throw error
        }
        self.addresses = addresses
        self.controls = controls
        self.threads = Mutex(threads)
    }

    deinit { stop() }

    public var port: UInt16 { addresses.first?.port ?? 0 }
    public var loopCount: Int { controls.count }

    /// Returns the bell of one loop. Any thread may ring it.
    public func bell(ofLoop index: Int) -> Wake { controls[index].bell }

    public func wakeAll() {
        for control in controls { control.bell.ring() }
    }

    /// Reads the certificate and the key again, for later handshakes. If the files cannot be used, throws and keeps the
    /// old certificate.
    public func reloadTLS() throws { try tls?.reload() }

    /// Stops accepting new clients. Connected clients stay.
    public func stopAccepting() {
        for control in controls { control.stopAccepting() }
    }

    /// Ends the loops, waits for them, and closes open connections. A second call does nothing.
    public func stop() {
        let threads = threads.withLock { threads in
            defer { threads = [] }
            return threads
        }
        SocketServer.end(controls, threads)
    }

    private static func end(_ controls: [LoopControl], _ threads: [BackgroundThread]) {
        for control in controls { control.stop() }
        for thread in threads { thread.join() }
    }

    private static func addresses(for settings: SocketSettings) throws(SystemError) -> [SocketAddress] {
        let found: [SocketAddress]
        if settings.host == "*" {
            found = [.any(port: settings.port)]
        } else {
            found = try SocketAddress.resolve(settings.host, port: settings.port)
        }
        guard settings.port != 0 else { return found }
        for address in found {
            do throws(SystemError) {
                try StreamSocket.checkIsFree(address)
            } catch {
                if !error.isAbsentFamily { throw error }
            }
        }
        return found
    }
}

/// Launcher that starts the loops one by one. Each loop makes its own listeners, in its own descriptor table, on the
/// address that the first loop has bound.
private final class LoopLaunch: Sendable {
    private let settings: SocketSettings
    private let controls: [LoopControl]
    private let tls: TLSSource?
    private let metrics: ProcessMetrics
    private let application: @Sendable (Int) -> any SocketApplication
    private let answered = Pulse()
    private let answer = Mutex<Result<[SocketAddress], SystemError>?>(nil)

    init(
        _ settings: SocketSettings, _ controls: [LoopControl], _ tls: TLSSource?, _ metrics: ProcessMetrics,
        _ application: @escaping @Sendable (Int) -> any SocketApplication
    ) {
        self.settings = settings
        self.controls = controls
        self.tls = tls
        self.metrics = metrics
        self.application = application
    }

    func start(
        _ index: Int, on addresses: [SocketAddress]
    ) throws(SystemError) -> (BackgroundThread, [SocketAddress]) {
        let thread = try BackgroundThread("loop-\(index)") { self.body(index, addresses) }
        // Waits without limit, because the started thread always answers. An eventfd instead would have to be closed in
        // the descriptor tables of both threads.
        _ = answered.wait(beyond: UInt64(index), untilMonotonic: .max >> 1)
        switch answer.withLock({ $0 }) {
        case .success(let bound): return (thread, bound)
        case .failure(let error):
            thread.join()
            throw error
        case nil: preconditionFailure("a loop answers before it rings")
        }
    }

    /// Main function of a loop's thread.
    private func body(_ index: Int, _ addresses: [SocketAddress]) {
        let made: SocketLoop
        do throws(SystemError) {
            if settings.ownDescriptorTables {
                try DescriptorTable.leaveShared(keeping: controls.map(\.bell.descriptor))
            }
            let (listeners, bound) = try LoopLaunch.listen(addresses, settings)
            made = try SocketLoop(
                control: controls[index], settings: settings, listeners: listeners, tls: tls,
                application: application(index), metrics: metrics)
            answer.withLock { $0 = .success(bound) }
        } catch {
            answer.withLock { $0 = .failure(error) }
            return answered.beat()
        }
        answered.beat()
        made.run()
    }

    /// Opens one listener for each of the addresses that this machine has. All use the port of the first one.
    private static func listen(
        _ addresses: [SocketAddress], _ settings: SocketSettings
    ) throws(SystemError) -> ([Int32], [SocketAddress]) {
        var listeners: [Int32] = []
        var bound: [SocketAddress] = []
        var last: SystemError?
        for wanted in addresses {
            do throws(SystemError) {
                let address = bound.first.map { wanted.with(port: $0.port) } ?? wanted
                let listener = try listenFallingBack(address, settings.listenBacklog)
                listeners.append(listener)
                bound.append(try StreamSocket.localAddress(of: listener))
            } catch {
                last = error
                if !error.isAbsentFamily { break }
            }
        }
        if let last, bound.isEmpty || !last.isAbsentFamily {
            for listener in listeners { StreamSocket.close(listener) }
            throw last
        }
        return (listeners, bound)
    }

    /// Listens on an address. On a machine without IPv6, the address that means "all addresses" falls back to all IPv4
    /// addresses.
    private static func listenFallingBack(_ address: SocketAddress, _ backlog: Int32) throws(SystemError) -> Int32 {
        do throws(SystemError) {
            return try StreamSocket.listen(on: address, backlog: backlog)
        } catch {
            guard error.isAbsentFamily, address.isAny, address.isIPv6 else { throw error }
            return try StreamSocket.listen(on: .anyIPv4(port: address.port), backlog: backlog)
        }
    }
}
