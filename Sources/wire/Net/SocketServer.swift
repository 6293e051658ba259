import Crypto
import Diagnostics
import Synchronization
import System

/// What other threads may tell a loop.
final class LoopControl: Sendable {
    let bell: Wake
    private let stops = Atomic<Bool>(false)
    private let stopsAccepting = Atomic<Bool>(false)

    init() throws(SystemError) { bell = try Wake() }

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

/// All loops together: starts their threads, tells them things, ends them. Control plane.
///
/// An application must not own its server: the last reference, when it goes, waits for the loops' threads.
public final class SocketServer: Sendable {
    public let addresses: [SocketAddress]
    private let controls: [LoopControl]
    private let tls: TLSSource?
    private let threads: Mutex<[BackgroundThread]>

    /// Binds, starts the threads and returns when all listen. Port 0: one that is free, the same for all loops.
    public init(
        _ settings: SocketSettings, metrics: ProcessMetrics,
        application: @escaping @Sendable (Int) -> any SocketApplication
    ) throws {
        precondition(settings.loopCount > 0, "without a loop nobody is served")
        var controls: [LoopControl] = []
        for _ in 0..<settings.loopCount { controls.append(try LoopControl()) }
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

    /// The bell of one loop. Ring it from any thread.
    public func bell(ofLoop index: Int) -> Wake { controls[index].bell }

    public func wakeAll() {
        for control in controls { control.bell.ring() }
    }

    /// Reads certificate and key again, for handshakes from now on. Files that cannot be used leave everything as it was.
    public func reloadTLS() throws { try tls?.reload() }

    /// New clients are refused from now on; those that are there stay.
    public func stopAccepting() {
        for control in controls { control.stopAccepting() }
    }

    /// Ends the loops and waits for them; what is still open is closed. Again: nothing.
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

/// Starts loops one by one: each makes its own listeners, in its own descriptor table, on the address that the first
/// one got.
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
        // As long as it takes: the thread always answers. Not by a descriptor, which would have to be closed in two tables.
        _ = answered.wait(beyond: UInt64(index), untilMonotonic: .max >> 1)
        switch answer.withLock({ $0 }) {
        case .success(let bound): return (thread, bound)
        case .failure(let error):
            thread.join()
            throw error
        case nil: preconditionFailure("a loop answers before it rings")
        }
    }

    /// On the loop's thread.
    private func body(_ index: Int, _ addresses: [SocketAddress]) {
        let made: SocketLoop
        do throws(SystemError) {
            if settings.ownDescriptorTables {
                let kept = controls.map(\.bell.descriptor) + settings.keptDescriptors
                try DescriptorTable.leaveShared(keeping: kept)
            }
            let (listeners, bound) = try LoopLaunch.listen(addresses, settings)
            made = try SocketLoop(
                index: index, control: controls[index], settings: settings, listeners: listeners, tls: tls,
                application: application(index), metrics: metrics)
            answer.withLock { $0 = .success(bound) }
        } catch {
            answer.withLock { $0 = .failure(error) }
            return answered.beat()
        }
        answered.beat()
        made.run()
    }

    /// One listener for each address that this machine has. The first one's port is everybody's.
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

    /// A machine without IPv6 still has all of its IPv4 addresses.
    private static func listenFallingBack(_ address: SocketAddress, _ backlog: Int32) throws(SystemError) -> Int32 {
        do throws(SystemError) {
            return try StreamSocket.listen(on: address, backlog: backlog)
        } catch {
            guard error.isAbsentFamily, address.isAny, address.isIPv6 else { throw error }
            return try StreamSocket.listen(on: .anyIPv4(port: address.port), backlog: backlog)
        }
    }
}
