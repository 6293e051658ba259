import Diagnostics
import Gateway
import Net
import Pages
import Projects
import Settings
import System

/// Server of the web console about one bundle, or a copy of a log, for browsers of this machine. It has no database.
public final class LogFileServer {
    private let gateway: Gateway
    private let operators: LogFileOperators

    /// Begins to listen on 127.0.0.1. Must be called on the main thread.
    ///
    /// - Parameters:
    ///   - path: absolute path of the bundle.
    ///   - name: name that the console shows.
    ///   - port: port; 0 means any free one.
    public init(_ path: String, name: String, port: UInt16) throws {
        Log.shared.configure(level: .warning, format: .text)
        operators = try LogFileOperators(path, name: name)
        var settings = GatewaySettings(sockets: SocketSettings(host: "127.0.0.1", port: port, loopCount: 1))
        settings.console = ConsoleGate.local(version: Product.version)
        do {
            gateway = try Gateway(settings, ProcessMetrics(version: Product.version, swift: Product.swift))
        } catch {
            operators.close()
            throw HubError.explaining(error, listen: ListenAddress(host: "127.0.0.1", port: port))
        }
        gateway.open(operators)
    }

    public var port: UInt16 { gateway.port }

    public func stop() {
        gateway.stop()
        operators.close()
    }
}
