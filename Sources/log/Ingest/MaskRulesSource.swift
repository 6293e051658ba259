import Bytes
import EventLog
import Glibc
import System

/// Check of the text of mask rules. Returns the reason why the text is invalid; nil if it is valid.
public typealias MaskRulesCheck = @Sendable (_ text: [UInt8]) -> String?

/// File that the setting `mask_rules` names. The hub copies its rules into the directory of each log.
public struct MaskRulesSource: Sendable {
    /// Path of the file; nil if the hub has no rules of its own.
    public var path: String?
    public var check: MaskRulesCheck?

    public init(path: String?, check: MaskRulesCheck? = nil) {
        self.path = path
        self.check = check
    }

    /// Reads the file, and writes its rules into the log's directory. Returns false if the directory already has the
    /// same rules. After an error the directory keeps its former rules.
    func renew(in directory: any StorageDirectory) throws -> Bool {
        try MaskRulesFile.write(text(), in: directory)
    }

    private func text() throws -> [UInt8] {
        guard let path else { return [] }
        let text: [UInt8]
        do throws(SystemError) {
            let file = try DiskDirectory(Directories.parent(of: path))
                .open(path.split(separator: "/").last.map(String.init) ?? path, for: .reading)
            guard try file.size() <= UInt64(MaskRulesFile.mostBytes) else {
                throw SystemError(operation: "read", subject: path, code: EFBIG)
            }
            text = try file.contents(atMost: UInt64(MaskRulesFile.mostBytes))
        } catch {
            // Other errors may pass: the hub tries again.
            guard [ENOENT, ENOTDIR, EACCES, EISDIR, EFBIG].contains(error.code) else { throw error }
            throw MaskRulesRefusal(path: path, reason: error.reason)
        }
        if let reason = check?(text) { throw MaskRulesRefusal(path: path, reason: reason) }
        return text
    }
}

/// Reason why the hub cannot use the file that the setting `mask_rules` names.
public struct MaskRulesRefusal: Error, Sendable, CustomStringConvertible {
    public let path: String
    public let reason: String

    public var description: String {
        "mask_rules: \(path): \(reason). The columns to mask are unknown without it: correct the file, or the setting"
    }
}
