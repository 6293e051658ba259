import Diagnostics
import FoundationEssentials
import Glibc

/// Environment, user and files from which a configuration is read, besides the command line. Tests make their own.
public struct ConfigurationSurroundings: Sendable {
    public enum Content: Sendable {
        case missing
        case unreadable(reason: String)
        case bytes([UInt8])
    }

    public let environment: [String: String]
    public let isRoot: Bool
    public let readFile: @Sendable (_ path: String) -> Content

    public init(
        environment: [String: String], isRoot: Bool, readFile: @escaping @Sendable (_ path: String) -> Content
    ) {
        self.environment = environment
        self.isRoot = isRoot
        self.readFile = readFile
    }

    /// Returns surroundings with these environment variables, and without files.
    public static func only(_ environment: [String: String] = [:]) -> ConfigurationSurroundings {
        ConfigurationSurroundings(environment: environment, isRoot: false) { _ in .missing }
    }

    public static var ofThisProcess: ConfigurationSurroundings {
        ConfigurationSurroundings(
            environment: ProcessInfo.processInfo.environment, isRoot: geteuid() == 0,
            readFile: readFile(at:))
    }

    @Sendable
    private static func readFile(at path: String) -> Content {
        // This path stands for an empty file, in place of the usual ones. It needs a special case, because not every
        // way of reading it gives an empty file.
        if path == "/dev/null" { return .bytes([]) }
        var isDirectory = false
        guard FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) else { return .missing }
        guard !isDirectory else { return .unreadable(reason: "it is a directory") }
        let size = (try? FileManager.default.attributesOfItem(atPath: path))?[.size] as? Int ?? 0
        guard size <= Limits.maximumConfigurationFileBytes else {
            return .unreadable(reason: "it is larger than \(Limits.maximumConfigurationFileBytes) bytes")
        }
        do {
            return .bytes(try [UInt8](Data(contentsOf: URL(filePath: path))))
        } catch {
            return .unreadable(reason: "the system does not let us read it")
        }
    }
}

extension ConfigurationSurroundings {
    /// Surroundings of the same machine and user, but without any settings.
    public var withoutSettings: ConfigurationSurroundings {
        ConfigurationSurroundings(
            environment: environment.filter { ["HOME", "XDG_STATE_HOME"].contains($0.key) }, isRoot: isRoot,
            readFile: { _ in .missing })
    }
}
