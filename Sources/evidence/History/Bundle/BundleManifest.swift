import Bytes

/// Description of a bundle, stored in it as `bundle.json`.
public struct BundleManifest: Sendable {
    private var texts: [String: String] = [:]
    /// Version of the bundle's format; nil if the manifest does not state one.
    public private(set) var version: Int?

    /// Reads the manifest's members. If one cannot be read, it and those after it stay unset.
    public init(_ json: [UInt8]) {
        var scanner = JSONScanner(json.rawBytes)
        guard (try? scanner.next()) == .beginObject else { return }
        while (try? scanner.next()) == .name {
            let name = scanner.text
            guard let value = try? scanner.next() else { return }
            if value == .string { texts[name] = scanner.text }
            if value == .number, name == "version" { version = Int(scanner.tokenBytes.text) }
            guard (try? scanner.skip(value)) != nil else { return }
        }
    }

    public subscript(name: String) -> String? { texts[name] }
}
