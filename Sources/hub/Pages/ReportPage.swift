import Bytes
import Crypto
import WebSocket

/// Report: the console and all data of it in one HTML file, which a browser opens without a network.
public enum ReportPage {
    /// Returns the file.
    ///
    /// - Parameter data: JSON that the console's script reads instead of asking a hub (`FileSource` in `source.js`).
    public static func html(_ data: [UInt8]) -> [UInt8] {
        let style = PageFiles.text("console.css")
        let script = String(decoding: PageFiles.script.bytes, as: UTF8.self)
        precondition(!script.contains("</script") && !style.contains("</style"), "a file must not end its element")
        // Only this style and this script apply, and nothing is loaded: a text in the data stays a text.
        let policy =
            "default-src 'none'; script-src '\(digest(script))'; style-src '\(digest(style))'; base-uri 'none'; "
            + "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        let packed = Base64.encode(Gzip.compress(data.rawBytes).span)
        let page = """
            <!doctype html>
            <html lang="en">
            <meta charset="utf-8">
            <meta http-equiv="content-security-policy" content="\(policy)">
            <title>Tidewire report</title>
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <style>\(style)</style>
            <body>
            <noscript>This report needs JavaScript. It loads nothing from a network.</noscript>
            <script type="application/gzip" id="report">\(packed)</script>
            <script type="module">\(script)</script>
            </body>
            </html>

            """
        return Array(page.utf8)
    }

    private static func digest(_ text: String) -> String {
        "sha256-" + Base64.encode(SHA256.digest(of: Array(text.utf8).span).span)
    }
}
